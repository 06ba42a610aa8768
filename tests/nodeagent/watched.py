"""The agent's own parts with every side effect counted, so that it can be killed after any of them."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from nodeagent.advertise.config_file import ConfigFile
from nodeagent.advertise.delivery import ContainerDelivery
from nodeagent.cdi.publisher import SpecificationPublisher
from nodeagent.cdi.specification import Specification
from nodeagent.handover.config import Allocation, DeviceListStrategy, PluginConfig, PluginFiles
from nodeagent.hardware.driver import ComputeInstance, GpuInstance
from nodeagent.hardware.nvml import NvmlDriver
from nodeagent.observed.ends import Ends
from nodeagent.observed.holdings import Holdings
from nodeagent.observed.kubelet import CheckpointEntry, Listed, NoAnswer
from nodeagent.observed.pods import ObservedPods
from nodeagent.observed.usage import Usage
from nodeagent.steps.journal import Intent, Journal
from partitioning.layouts import Instance
from tests.clock import Clock


class Killed(BaseException):
    """kill -9 of the agent."""


class TouchedError(AssertionError):
    """The agent ended something that a container uses."""


@dataclass
class Effects:
    """Counts what the agent does to the world, and kills it after the n-th."""

    kill_after: int = -1
    done: list[str] = field(default_factory=list)
    check: Callable[[str], None] = lambda _what: None
    """What must hold after each of them."""

    def __call__(self, what: str) -> None:
        self.done.append(what)
        self.check(what)
        if len(self.done) == self.kill_after:
            raise Killed(what)


class WatchedDriver(NvmlDriver):
    """The real driver module; each change is an effect, and none may hit what runs."""

    def __init__(
        self,
        effect: Effects,
        running: Callable[[], set[str]],
        before_destroy: Callable[[str, GpuInstance], None] = lambda _uuid, _instance: None,
    ) -> None:
        """`before_destroy` runs after the agent has verified an instance and before the driver destroys it."""
        super().__init__()
        self._effect, self._running, self._before_destroy = effect, running, before_destroy
        self.before_change: Callable[[], None] = lambda: None

    def create_gpu_instance(self, gpu_uuid: str, placed: Instance) -> int:
        self.before_change()
        made = super().create_gpu_instance(gpu_uuid, placed)
        self._effect(f"create GI {placed}")
        return made

    def create_compute_instance(self, gpu_uuid: str, gpu_instance: int) -> None:
        self.before_change()
        super().create_compute_instance(gpu_uuid, gpu_instance)
        self._effect(f"create CI in {gpu_instance}")

    def destroy_compute_instance(self, gpu_uuid: str, instance: GpuInstance, compute: ComputeInstance) -> None:
        self.before_change()
        self._before_destroy(gpu_uuid, instance)
        before = self._devices(gpu_uuid)
        super().destroy_compute_instance(gpu_uuid, instance, compute)
        # Whatever the agent took it for: what is gone now must not be in use.
        if touched := (before - self._devices(gpu_uuid)) & self._running():
            raise TouchedError(f"{sorted(touched)} went with {instance}")
        self._effect(f"destroy CI {compute.id} of {instance.placed}")

    def destroy_gpu_instance(self, gpu_uuid: str, instance: GpuInstance) -> None:
        self.before_change()
        super().destroy_gpu_instance(gpu_uuid, instance)
        self._effect(f"destroy GI {instance.id}")

    def set_compute_mode(self, gpu_uuid: str, mode: int) -> None:
        self.before_change()
        super().set_compute_mode(gpu_uuid, mode)
        self._effect(f"compute mode {mode}")

    def _devices(self, gpu_uuid: str) -> set[str]:
        # Of this GPU alone: another one may hang.
        gpu = self.observe_gpu(next(index for index, uuid in self._uuids.items() if uuid == gpu_uuid))
        return {compute.uuid for instance in gpu.instances for compute in instance.compute}


class WatchedJournal(Journal):
    def __init__(self, directory: Path, effect: Effects) -> None:
        super().__init__(directory)
        self._effect = effect

    def begin(self, gpu_uuid: str, intent: Intent) -> None:
        super().begin(gpu_uuid, intent)
        self._effect(f"journal {intent.action} {intent.placed}")

    def end(self, gpu_uuid: str, intent: Intent) -> None:
        super().end(gpu_uuid, intent)
        self._effect("journal end")


class WatchedConfigFile(ConfigFile):
    def __init__(self, files: PluginFiles, effect: Effects, boot_id: str) -> None:
        super().__init__(files, boot_id=boot_id)
        self._effect = effect

    def write(self, config: PluginConfig, *, in_force: bool, overdue: bool, again: bool = False) -> bool:
        before = self.config
        written = super().write(config, in_force=in_force, overdue=overdue, again=again)
        if self.config != before:
            self._effect("config.json")
        return written


class WatchedDelivery(ContainerDelivery):
    def __init__(self, cdi: Path, effect: Effects, *, proc: Path, strategy: DeviceListStrategy, clock: Clock) -> None:
        publisher = WatchedPublisher(cdi, effect, proc=proc)
        super().__init__(publisher, strategy=strategy, containerd=dict, clock=clock)


class WatchedPublisher(SpecificationPublisher):
    def __init__(self, cdi: Path, effect: Effects, *, proc: Path) -> None:
        super().__init__(cdi, proc=proc, folders=(cdi,))
        self._effect = effect

    def _replace(self, specification: Specification | None) -> str:
        before = self._text()
        problem = super()._replace(specification)
        if self._text() != before:
            self._effect("CDI specification")
        return problem


class WatchedHoldings(Holdings):
    def __init__(self, path: Path, effect: Effects, clock: Clock, boot_id: str) -> None:
        super().__init__(path, clock=clock, slack_seconds=30.0, boot_id=boot_id)
        self._file, self._effect = path, effect

    def votes(
        self,
        pods: ObservedPods,
        listed: Listed | NoAnswer,
        allocations: Iterable[Allocation],
        checkpoint: Iterable[CheckpointEntry],
        ends: Ends,
        *,
        unseen: Collection[str] = (),
        believed: bool = True,
    ) -> Usage:
        before = self._file.read_bytes() if self._file.exists() else b""
        votes = super().votes(pods, listed, allocations, checkpoint, ends, unseen=unseen, believed=believed)
        if self._file.exists() and self._file.read_bytes() != before:
            self._effect("holdings.json")
        return votes
