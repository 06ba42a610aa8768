"""The protocol of GPU hardware for the agent: its calls, its frozen values, and its errors.

`nvml.NvmlDriver` implements it; tests bring their own. Words are those of `partitioning`: a GPU instance is an
`Instance` at its placement, plus the ids that the driver needs to name it again. Each of the changes is one driver
call, so that a journal entry can come before each. Nothing here decides what may be changed.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from crds.v1alpha1.names import CLOSED, LABEL_DRIVER
from partitioning.layouts import Instance, Layout
from partitioning.models import GpuModel


def with_driver_closed(command: str) -> str:
    """How a person runs a command that the driver refuses while anyone has the GPU open."""
    return (
        f"label the node {LABEL_DRIVER}={CLOSED}, drain it, wait for the condition DriverReleased, end what its "
        f"message names, run {command}, remove the label and uncordon the node"
    )


class MigMode(StrEnum):
    """As the status shows it."""

    ENABLED = "Enabled"
    DISABLED = "Disabled"
    NOT_SUPPORTED = "NotSupported"


class Health(StrEnum):
    """As the status shows it."""

    OK = "OK"
    UNHEALTHY = "Unhealthy"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeInstance:
    """A compute instance; `uuid` is that of its MIG device, which the driver reuses for the next one at this place."""

    id: int
    slices: int
    uuid: str
    multiprocessors: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInstance:
    """A GPU instance: its id on this GPU, its placement, and its compute instances."""

    id: int
    placed: Instance
    compute_slices: int
    compute: tuple[ComputeInstance, ...] = ()
    multiprocessors: int = 0
    """Of its full compute instance."""

    @property
    def uuid(self) -> str | None:
        """The MIG device that pods can get: only where one compute instance fills the whole GPU instance."""
        if len(self.compute) == 1 and self.compute[0].slices == self.compute_slices:
            return self.compute[0].uuid
        return None

    @property
    def reduced(self) -> bool:
        """Its one compute instance leaves multiprocessors unused: other programs choose the first profile that fits."""
        return self.uuid is not None and self.compute[0].multiprocessors < self.multiprocessors

    @property
    def half_made(self) -> bool:
        """Without a compute instance: no MIG device, no process, but the place is taken."""
        return not self.compute


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that the driver lists; `instance` is the GPU instance it runs in."""

    pid: int
    instance: int | None = None
    mps_client: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedGpu:
    """One GPU as the driver shows it. With a `problem` nothing else but index and uuid is to be believed."""

    index: int
    uuid: str
    name: str = ""
    model: GpuModel | None = None
    mig_mode: MigMode = MigMode.NOT_SUPPORTED
    mig_mode_pending: MigMode = MigMode.NOT_SUPPORTED
    instances: tuple[GpuInstance, ...] = ()
    health: Health = Health.UNKNOWN
    health_message: str = ""
    problem: str = ""
    hangs: bool = False
    """The problem is a call that has not returned."""
    minor: int | None = None
    """Of its node /dev/nvidia<minor>, as in the names of its capability files. A change of MIG mode may move it."""
    compute_mode: int | None = None
    """In NVML's numbers; None where it has none."""
    processes: tuple[GpuProcess, ...] | str = "the processes on this GPU were not read"
    """On it or its instances; a text says why they are not known."""

    @property
    def layout(self) -> Layout:
        """Every placement that is taken, half-made instances included."""
        return Layout.of(instance.placed for instance in self.instances)

    @property
    def mig_enabled(self) -> bool:
        return self.mig_mode is MigMode.ENABLED

    def collide(self, one: Instance, other: Instance) -> bool:
        """Whether they cannot exist on this GPU together."""
        return bool(one.mask & other.mask) or (
            self.model is not None and self.model.excludes(one.profile, other.profile)
        )

    def at(self, placed: Instance) -> GpuInstance | None:
        """The GPU instance that has exactly this placement and profile."""
        return next((instance for instance in self.instances if instance.placed == placed), None)


class GpuDriver(Protocol):
    """One call at a time for each GPU. Every method may raise DriverError.

    Subclasses inherit `observe`, which goes through the GPUs one after another, and `still`.
    """

    def version(self) -> str:
        """Version of the kernel driver; empty where it does not tell."""

    def count(self) -> int:
        """The number of GPUs; touches none of them."""

    def observe_gpu(self, index: int) -> ObservedGpu:
        """One GPU; with a `problem` where it cannot be read. Raises DriverGoneError where that is no GPU's fault."""

    def processes(self, gpu: ObservedGpu) -> tuple[GpuProcess, ...]:
        """The processes on a GPU or its instances, as they are now."""

    def release(self) -> None:
        """Close the driver, so that it can be unloaded. The next call opens it again."""

    def still(self, gpu: ObservedGpu) -> ObservedGpu:
        """The same reading where the GPU is still there, else a new one."""
        return self.observe_gpu(gpu.index)

    def observe(self, kept: Iterable[ObservedGpu] = ()) -> tuple[ObservedGpu, ...]:
        """All GPUs, by index; one that cannot be read comes with a `problem`. `kept` are readings to be used again."""
        readings = {gpu.index: gpu for gpu in kept}
        return tuple(self.still(readings[i]) if i in readings else self.observe_gpu(i) for i in range(self.count()))

    def create_gpu_instance(self, gpu_uuid: str, placed: Instance) -> int:
        """Take exactly this placement; returns the id of the GPU instance."""

    def create_compute_instance(self, gpu_uuid: str, gpu_instance: int) -> None:
        """Fill a GPU instance with its default, full-size compute instance."""

    def destroy_compute_instance(self, gpu_uuid: str, instance: GpuInstance, compute: ComputeInstance) -> None:
        """End a MIG device. Raises ChangedError where its ids belong to another instance by now."""

    def destroy_gpu_instance(self, gpu_uuid: str, instance: GpuInstance) -> None:
        """Free the place. Raises ChangedError where its id belongs to another instance by now."""

    def set_compute_mode(self, gpu_uuid: str, mode: int) -> None:
        """Which processes may compute on a GPU without MIG, in NVML's numbers."""


class DriverError(Exception):
    """A driver call failed.

    DriverError
    |-- DriverGoneError      no library or no driver: nothing can be known about any GPU
    |   `-- DriverReplacedError  the driver was upgraded, and this process has the old library loaded
    |-- DriverClosedError    the agent has closed the driver, so that others can work on it
    |   `-- DriverClosingError  it is to, and a call has not returned
    |-- DriverTimeoutError   no answer in time; the call may still take effect
    |   `-- DriverHangsError     the call has not returned, or did so only just now
    |-- GpuLostError         this GPU is off the bus or wants a reset
    |-- InUseError           a client holds what should change: information, not failure
    |-- ChangedError         the ids name another instance than the one that was observed: nothing was done
    |-- RefusedError         the driver will not do it: no room, bad argument, no MIG
    `-- NotPermittedError    the agent lacks a privilege
    """

    kind = "other"

    def __init__(self, attempted: str, answer: str) -> None:
        super().__init__(f"{attempted}: {answer}")
        self.attempted, self.answer = attempted, answer


class DriverGoneError(DriverError):
    kind = "gone"


class DriverReplacedError(DriverGoneError):
    kind = "replaced"


class DriverClosedError(DriverError):
    kind = "closed"


class DriverClosingError(DriverClosedError):
    kind = "closing"


class DriverTimeoutError(DriverError):
    kind = "timeout"


class DriverHangsError(DriverTimeoutError):
    """No answer yet."""


class GpuLostError(DriverError):
    kind = "gpu-lost"


class InUseError(DriverError):
    kind = "in-use"


class RefusedError(DriverError):
    kind = "refused"


class ChangedError(DriverError):
    kind = "changed"


class NotPermittedError(DriverError):
    kind = "not-permitted"
