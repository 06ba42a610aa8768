"""Makes sure that a container can really use what is advertised: each device has an entry for the container runtime.

Takes the config that a pass would write, keeps the CDI specification in step with it, and returns a `Delivery`: which
way containers get their devices, and which devices no container could use yet, with the reasons. `apply` withdraws
these. By environment variable nothing can be verified, so nothing is withheld. Must be called before the config is
written, and `forget` before an instance is destroyed.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from nodeagent.cdi.host_devices import HostDevices
from nodeagent.cdi.publisher import Published, SpecificationPublisher
from nodeagent.cdi.runtime_support import why_no_cdi
from nodeagent.durations import Durations
from nodeagent.handover.config import DeviceListStrategy, PluginConfig
from nodeagent.hardware.driver import GpuInstance, ObservedGpu
from nodeagent.observation import Observation

PATIENCE_SECONDS = 60.0
"""NVIDIA's toolkit needs some time to write the files of a new driver, and the device plugin to start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """How containers get devices now, and which they cannot get."""

    strategy: DeviceListStrategy = DeviceListStrategy.ENVVAR
    missing: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By device id, why no container could use it."""
    unseen: str = ""
    """What of the driver the agent cannot see, and devices need."""
    note: str = ""
    """What an administrator should know although everything works."""
    overdue: bool = False
    """Something has been missing for long enough that a person must act."""
    waits: bool = False
    """Something is missing that may come by itself, without an event."""

    def apply(self, config: PluginConfig) -> PluginConfig:
        """The same devices, those that no container could use withdrawn."""
        withdrawn = {*config.withdrawn, *(device.id for device in config.devices if device.id in self.missing)}
        return replace(config, withdrawn=tuple(sorted(withdrawn)), device_list_strategy=self.strategy)

    @property
    def reason(self) -> str:
        """The sentences, each once."""
        return "; ".join(sorted(set(self.missing.values())))


class ContainerDelivery:
    """`prepare` is called once a pass."""

    def __init__(
        self,
        publisher: SpecificationPublisher,
        *,
        strategy: DeviceListStrategy,
        containerd: Callable[[], Mapping[str, bool | None]],
        host_devices: HostDevices | None = None,
        clock: Callable[[], float],
    ) -> None:
        self._publisher, self._strategy, self._containerd = publisher, strategy, containerd
        self._host_devices = host_devices
        self._durations = Durations(clock)

    def forget(self, instance: GpuInstance) -> str:
        """Take out what names an instance that is about to be destroyed; returns why that was not possible."""
        return self._publisher.forget(_ids([instance]))

    def prepare(self, config: PluginConfig, observation: Observation, doomed: Iterable[GpuInstance]) -> Delivery:
        """`doomed` are instances that will be destroyed, and that no pod can get any more."""
        strategy, note = self._strategy, ""
        published = Published()
        if strategy is DeviceListStrategy.CDI_CRI or self._publisher.exists:
            published = self._publish(config, observation, without=_ids(doomed))
        missing: Mapping[str, str] = {}  # by environment variable the file is kept only for containers that have a name
        if strategy is DeviceListStrategy.CDI_CRI:
            node = observation.readings.node
            why = why_no_cdi(node.container_runtime, node.kubelet_version, self._containerd()) if node else ""
            missing = dict.fromkeys((device.id for device in config.devices), why) if why else published.missing
            note = published.problem
        if self._host_devices is not None:
            note = "; ".join(filter(None, (note, self._host_devices.refresh(observation.gpus))))
        seconds = max((self._durations.seconds(why) for why in set(missing.values())), default=0.0)
        self._durations.end_pass()
        overdue = seconds >= PATIENCE_SECONDS
        return Delivery(
            strategy=strategy,
            missing=missing,
            unseen=published.unseen,
            note=note,
            overdue=overdue,
            waits=bool(missing) and not overdue,
        )

    def _publish(self, config: PluginConfig, observation: Observation, *, without: Collection[str]) -> Published:
        by_uuid = {gpu.uuid: gpu for gpu in observation.gpus}
        # A GPU that does not even report its UUID keeps its entries, as it keeps its devices.
        unseen = partial(ObservedGpu, index=-1, problem="its GPU was not observed")
        devices = [(d, by_uuid.get(d.gpu) or unseen(uuid=d.gpu)) for d in config.devices if d.id not in without]
        loaded = observation.readings.loaded
        mps_root = Path(loaded.mps_root) if loaded is not None else None
        return self._publisher.publish(devices, driver_version=observation.driver_version, mps_root=mps_root)


def _ids(instances: Iterable[GpuInstance]) -> frozenset[str]:
    return frozenset(compute.uuid for instance in instances for compute in instance.compute)
