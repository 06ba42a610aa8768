"""Stands in for NVIDIA's mps-control-daemon, the program that runs an MPS daemon for each shared resource of a node.

Takes its root on the host, the machine, and how to read its config file; `start`, `hang_up` and `terminate` are its
start and its signals, `step` lets time pass. The daemons are the sandbox's own control command. As the real program it
reads its config at a start and on SIGHUP only, sets every GPU of a shared resource to EXCLUSIVE_PROCESS, cuts at 48
replicas (16 below compute capability 7.5), and stops by `quit`, which waits for the last client, however long.
Must never keep limits up to date by itself.
"""

import io
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sandbox.mps.control import main as control_command
from sandbox.mps.statefile import load
from tests.mps import connected
from tests.nvidia_plugin.config_file import MPS, BadConfig, parse
from tests.nvidia_plugin.gpus import DEFAULT, EXCLUSIVE_PROCESS, WHOLE, Gpu, device_ids, gpus, set_compute_mode

RETRY_SECONDS = 30.0
MOST_REPLICAS, MOST_REPLICAS_OLD, FIRST_WITH_MOST = 48, 16, (7, 5)


class ControlFailed(Exception):  # noqa: N818 - an answer of the command
    """It exited with an error; the text is what it printed."""


def tell(pipe: Path, *arguments: str, command: str = "") -> str:
    """What nvidia-cuda-mps-control prints."""
    out, error = io.StringIO(), io.StringIO()
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe)}
    if control_command(list(arguments), environment, io.StringIO(command), out, error):
        raise ControlFailed(f"{out.getvalue()}{error.getvalue()}".strip())
    return out.getvalue()


@dataclass(frozen=True, slots=True)
class Shared:
    """One resource and its daemon's folder."""

    folder: Path
    gpus: tuple[Gpu, ...]
    replicas: int

    @property
    def pipe(self) -> Path:
        return self.folder / "pipe"


class MpsControlDaemon:
    """One process; what it leaves in its root outlives it."""

    def __init__(self, root: Path, machine: Path, read: Callable[[], str]) -> None:
        self.root = root
        self.running = False
        self.ended: str | None = None
        """Why it exited 1."""
        self._machine, self._read = machine, read
        self._daemons: list[Shared] = []
        self._stopping: list[Shared] | None = None
        self._again = False
        self._retry_at: float | None = None

    def start(self, now: float) -> None:
        """The process starts."""
        self.running, self.ended, self._stopping, self._daemons = True, None, None, []
        self._load(now)

    def hang_up(self, now: float) -> None:
        """SIGHUP: stop the daemons, then load the config. Waits for clients."""
        self._stop(now, again=True)

    def terminate(self, now: float) -> None:
        """SIGTERM: stop the daemons, then end."""
        self._stop(now, again=False)

    def kill(self) -> None:
        """SIGKILL for all of its container: files and compute modes stay as they are."""
        self.running = False
        for shared in self._daemons:
            (shared.pipe / ".sandbox-mps.json").unlink(missing_ok=True)

    def step(self, now: float) -> None:
        """Do what is due."""
        if not self.running:
            return
        if self._stopping is not None:
            self._go_on_stopping(now)
        elif self._retry_at is not None and now >= self._retry_at:
            self._stop(now, again=True)

    def _load(self, now: float) -> None:
        self._retry_at, self._daemons = None, []
        try:
            self._daemons = self._planned()
        except BadConfig as bad:
            self._end(f"error starting plugins: {bad}")
            return
        self.root.mkdir(parents=True, exist_ok=True)
        for shared in self._daemons:
            if not self._started(shared):
                self._retry_at = now + RETRY_SECONDS
                return
        (self.root / ".ready").touch()

    def _planned(self) -> list[Shared]:
        try:
            config = parse(self._read())
        except OSError as error:
            raise BadConfig(f"unable to load config: {error}") from error
        replicas = dict(config.replicas).get(WHOLE, 0)
        if config.strategy != MPS or not replicas:
            return []
        found = gpus(self._machine)
        for gpu in found:
            most = MOST_REPLICAS if gpu.compute_capability >= FIRST_WITH_MOST else MOST_REPLICAS_OLD
            if replicas > most:
                exceeded = f"invalid device maximum allowed replicas exceeded: {replicas} > {most}"
                raise BadConfig(f"error getting daemons: invalid MPS configuration: {exceeded}")
        return [Shared(self.root / resource, found, replicas) for resource in device_ids(config, found)]

    def _started(self, shared: Shared) -> bool:
        if not all(set_compute_mode(self._machine, gpu.uuid, EXCLUSIVE_PROCESS) for gpu in shared.gpus):
            return False
        shared.pipe.mkdir(parents=True, exist_ok=True)
        (shared.folder / "log").mkdir(exist_ok=True)
        try:
            tell(shared.pipe, "-d")
            for gpu in shared.gpus:
                limit = gpu.memory_mib // shared.replicas
                tell(shared.pipe, command=f"set_default_device_pinned_mem_limit {gpu.index} {limit}M")
            tell(shared.pipe, command=f"set_default_active_thread_percentage {100 // shared.replicas}")
        except ControlFailed:
            return False
        (shared.folder / ".started").write_text("")
        return True

    def _stop(self, now: float, *, again: bool) -> None:
        if not self.running or self._stopping is not None:
            return
        (self.root / ".ready").unlink(missing_ok=True)
        self._stopping, self._again = list(self._daemons), again
        self._go_on_stopping(now)

    def _go_on_stopping(self, now: float) -> None:
        while self._stopping:
            shared = self._stopping[0]
            if load(str(shared.pipe)) is None:
                self._end("error stopping plugins from previous run: error sending quit message")  # modes stay
                return
            if connected(shared.pipe):
                return
            tell(shared.pipe, command="quit")
            for gpu in shared.gpus:
                set_compute_mode(self._machine, gpu.uuid, DEFAULT)
            (shared.folder / ".started").unlink(missing_ok=True)
            shutil.rmtree(shared.folder / "log", ignore_errors=True)
            self._stopping.pop(0)
        self._stopping = None
        if self._again:
            self._load(now)
        else:
            self.running = False

    def _end(self, message: str) -> None:
        self.running, self.ended, self._stopping = False, message, None
