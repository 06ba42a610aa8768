"""Stands in for NVIDIA's mps-control-daemon, the program that runs an MPS daemon for the shared resource of a node.

Takes its root on the host besides; `step` lets time pass. The daemon is the sandbox's own control command. As the real
program it reads its config at a start and on SIGHUP only, sets every shared GPU to EXCLUSIVE_PROCESS, cuts at 48
replicas (16 below compute capability 7.5), and stops by `quit`, which waits for the last client, however long.
Must never keep limits up to date by itself.
"""

import io
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.driver.boards import board_of
from sandbox.driver.processes import find
from sandbox.driver.state import GpuState
from sandbox.driver.store import Store
from sandbox.mps.control import main as control_command
from sandbox.mps.statefile import load
from sandbox.nvidia_plugin.config_file import MPS, BadConfig
from sandbox.nvidia_plugin.programs import RETRY_SECONDS, Program

MOST_REPLICAS, MOST_REPLICAS_OLD, FIRST_WITH_MOST = 48, 16, (7, 5)
DEFAULT, EXCLUSIVE_PROCESS = 0, 3


class ControlFailed(Exception):  # noqa: N818 - an answer of the command
    """It exited with an error; the text is what it printed."""


def tell(pipe: Path, *arguments: str, command: str = "") -> str:
    """What nvidia-cuda-mps-control prints."""
    out, error = io.StringIO(), io.StringIO()
    environment = {"CUDA_MPS_PIPE_DIRECTORY": str(pipe)}
    if control_command(list(arguments), environment, io.StringIO(command), out, error):
        raise ControlFailed(f"{out.getvalue()}{error.getvalue()}".strip())
    return out.getvalue()


@dataclass(eq=False)
class MpsControlDaemon(Program):
    """One process; what it leaves in its root outlives it."""

    root: Path
    retry_seconds: float = RETRY_SECONDS
    _folder: Path | None = field(default=None, init=False)
    """Of the resource that is shared."""
    _stopping: bool = field(default=False, init=False)
    _again: bool = field(default=False, init=False)
    _retry_at: float | None = field(default=None, init=False)

    def start(self, now: float) -> None:
        self._folder, self._stopping = None, False
        super().start(now)

    def hang_up(self, now: float) -> None:
        """Stop the daemon, then load the config. Waits for clients."""
        self._stop(now, again=True)

    def terminate(self, now: float) -> None:
        """Stop the daemon, then end."""
        self._stop(now, again=False)

    def step(self, now: float) -> None:
        if self.running and self._stopping:
            self._go_on_stopping(now)
        elif self.running and self._retry_at is not None and now >= self._retry_at:
            self._stop(now, again=True)

    def load(self, now: float) -> None:
        self._retry_at, self._folder, gpus = None, None, self.gpus
        try:
            config = self.config()
            resources = config.device_ids(gpus) if config.strategy == MPS and config.of_gpus > 1 else {}
            for gpu in gpus:
                most = MOST_REPLICAS if board_of(gpu).model.compute_capability >= FIRST_WITH_MOST else MOST_REPLICAS_OLD
                if resources and config.of_gpus > most:
                    exceeded = f"invalid device maximum allowed replicas exceeded: {config.of_gpus} > {most}"
                    raise BadConfig(f"error getting daemons: invalid MPS configuration: {exceeded}")
        except BadConfig as bad:
            self.end(f"error starting plugins: {bad}")
            return
        self.root.mkdir(parents=True, exist_ok=True)
        for resource in resources:
            self._folder = self.root / resource
            if not self._started(self._folder, gpus, config.of_gpus):
                self._retry_at = now + self.retry_seconds
                return
        (self.root / ".ready").touch()

    def _started(self, folder: Path, gpus: Sequence[GpuState], replicas: int) -> bool:
        if not all(self._set_compute_mode(gpu, EXCLUSIVE_PROCESS) for gpu in gpus):
            return False
        pipe = folder / "pipe"
        pipe.mkdir(parents=True, exist_ok=True)
        (folder / "log").mkdir(exist_ok=True)
        try:
            tell(pipe, "-d")
            for index, gpu in enumerate(gpus):
                limit = gpu["memory_mib"] // replicas
                tell(pipe, command=f"set_default_device_pinned_mem_limit {index} {limit}M")
            tell(pipe, command=f"set_default_active_thread_percentage {100 // replicas}")
        except ControlFailed:
            return False
        (folder / ".started").write_text("")
        return True

    def _set_compute_mode(self, gpu: GpuState, mode: int) -> bool:
        """False where nvidia-smi fails: a GPU in MIG mode has only the default."""
        with Store(self.machine).writing() as state:
            if not gpu["mig_mode"] or mode == DEFAULT:
                find(state, gpu["uuid"])[0]["compute_mode"] = mode
        return not gpu["mig_mode"] or mode == DEFAULT

    def _stop(self, now: float, *, again: bool) -> None:
        if self.running and not self._stopping:
            (self.root / ".ready").unlink(missing_ok=True)
            self._stopping, self._again = True, again
            self._go_on_stopping(now)

    def _go_on_stopping(self, now: float) -> None:
        if self._folder is not None:
            state = load(str(self._folder / "pipe"))
            if state is None:
                self._stopping = False
                self.end("error stopping plugins from previous run: error sending quit message")  # modes stay
                return
            if any(server["clients"] for server in state["servers"].values()):
                return
            tell(self._folder / "pipe", command="quit")
            for gpu in self.gpus:
                self._set_compute_mode(gpu, DEFAULT)
            (self._folder / ".started").unlink(missing_ok=True)
            shutil.rmtree(self._folder / "log", ignore_errors=True)
            self._folder = None
        self._stopping = False
        if self._again:
            self.load(now)
        else:
            self.running = False
