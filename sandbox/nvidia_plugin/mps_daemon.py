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
from sandbox.nvidia_plugin.config_file import MPS, BadConfig, Config
from sandbox.nvidia_plugin.devices import Device, devices_of
from sandbox.nvidia_plugin.programs import RETRY_SECONDS, Program

MOST_REPLICAS, MOST_REPLICAS_OLD, FIRST_WITH_MOST = 48, 16, (7, 5)
DEFAULT, EXCLUSIVE_PROCESS = 0, 3
NO_DAEMON = "error sending quit message: failed to send command to MPS daemon: exit status 1"


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
    _uuids: tuple[str, ...] = field(default=(), init=False)
    _stopping: bool = field(default=False, init=False)
    _again: bool = field(default=False, init=False)
    _retry_at: float | None = field(default=None, init=False)

    def start(self, now: float) -> None:
        self._folder, self._stopping = None, False
        super().start(now)

    def sighup(self, now: float) -> None:
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
        self._retry_at, self._folder = None, None
        try:
            config = self.config()
            resources = _shared(config, self.gpus) if config.strategy == MPS else {}
        except BadConfig as bad:
            self.end(f"error starting plugins: {bad}")
            return
        self.root.mkdir(parents=True, exist_ok=True)
        for resource, devices in resources.items():
            self._folder = self.root / resource
            if not self._started(self._folder, devices):
                self._retry_at = now + self.retry_seconds
                return
        (self.root / ".ready").touch()

    def _started(self, folder: Path, devices: Sequence[Device]) -> bool:
        once = {device.uuid: device for device in devices}
        replicas = len(devices) // len(once)
        gpus = {gpu["uuid"]: gpu for gpu in self.gpus}
        # Of several it goes in any order, and stops at the first that refuses: here, after all others were changed.
        if not all(self._exclusive(gpus.get(uuid)) for uuid in sorted(once, key=lambda u: _refuses(gpus.get(u)))):
            return False
        pipe = folder / "pipe"
        pipe.mkdir(parents=True, exist_ok=True)
        (folder / "log").mkdir(exist_ok=True)
        try:
            tell(pipe, "-d")
            for uuid, device in once.items():
                limit = gpus[uuid]["memory_mib"] // replicas
                tell(pipe, command=f"set_default_device_pinned_mem_limit {device.index} {limit}M")
            tell(pipe, command=f"set_default_active_thread_percentage {100 // replicas}")
        except ControlFailed:
            return False
        (folder / ".started").write_text("")
        self._uuids = tuple(once)
        return True

    def _exclusive(self, gpu: GpuState | None) -> bool:
        """False where nvidia-smi fails."""
        if gpu is None or _refuses(gpu):
            return False
        self._set_compute_mode(gpu["uuid"], EXCLUSIVE_PROCESS)
        return True

    def _set_compute_mode(self, uuid: str, mode: int) -> None:
        with Store(self.machine).writing() as state:
            find(state, uuid)[0]["compute_mode"] = mode

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
                doing = "stopping plugins from previous run" if self._again else "stopping daemons"
                self.end(f"error {doing}: {NO_DAEMON}")  # modes stay
                return
            if any(server["clients"] for server in state["servers"].values()):
                return
            tell(self._folder / "pipe", command="quit")
            for uuid in self._uuids:
                self._set_compute_mode(uuid, DEFAULT)
            (self._folder / ".started").unlink(missing_ok=True)
            shutil.rmtree(self._folder / "log", ignore_errors=True)
            self._folder = None
        self._stopping = False
        if self._again:
            self.load(now)
        else:
            self.running = False


def _shared(config: Config, gpus: Sequence[GpuState]) -> dict[str, tuple[Device, ...]]:
    """By resource. It has no objection to MIG devices, other than the plugin, and then fails to set their mode."""
    try:
        all_of_them = devices_of(config, gpus)
    except BadConfig as bad:
        raise BadConfig(f"error getting daemons: {bad}") from bad
    found = {name: devices for name, devices in all_of_them.items() if any("::" in one.id for one in devices)}
    models = {gpu["uuid"]: board_of(gpu).model for gpu in gpus}
    for devices in found.values():
        for device in devices:
            model = models.get(device.uuid)
            if model is None:
                continue  # of a MIG device nothing is asked
            most = MOST_REPLICAS if model.compute_capability >= FIRST_WITH_MOST else MOST_REPLICAS_OLD
            replicas = len(devices) // len({one.uuid for one in devices})
            if replicas > most:
                exceeded = f"invalid device maximum allowed replicas exceeded: {replicas} > {most}"
                raise BadConfig(f"error getting daemons: invalid MPS configuration: {exceeded}")
    return found


def _refuses(gpu: GpuState | None) -> bool:
    """Another mode than the default: in MIG mode, or no GPU at all but a MIG device."""
    return gpu is None or gpu["mig_mode"]
