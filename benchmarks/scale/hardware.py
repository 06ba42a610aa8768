"""The GPUs, the device plugin and the kubelet of a simulated node, in memory: what the real agent talks to.

Takes seeded GPUs and the agent's config for the plugin, and gives the answers that NVML, pod-resources and the plugin's
files would give. Everything that these parts do takes no time, but for the kubelet's status tick, which belongs to
`node`. It is as strict as they are: an instance that does not fit is refused, and so is a pod without a free device.
"""

import threading
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.scale.workload import Gpu, model
from nodeagent.handover.config import PluginConfig
from nodeagent.hardware.driver import (
    ComputeInstance,
    GpuDriver,
    GpuInstance,
    GpuProcess,
    Health,
    InUseError,
    MigMode,
    ObservedGpu,
    RefusedError,
)
from nodeagent.observed.kubelet import Allocatable, CheckpointEntry, Listed
from nodeagent.observed.pods import NodePod
from partitioning.layouts import Instance, Layout, check_layout

PodKey = tuple[str, str]
Devices = dict[str, tuple[str, ...]]
"""Ids by resource."""


@dataclass(slots=True)
class _Created:
    placed: Instance
    filled: bool = False
    """Has its compute instance."""


@dataclass(slots=True)
class _Card:
    seeded: Gpu
    instances: dict[int, _Created] = field(default_factory=dict)
    next_id: int = 1


class SimulatedDriver(GpuDriver):
    """A `nodeagent.hardware.driver.GpuDriver` of H100s."""

    def __init__(self, gpus: Sequence[Gpu], held: "SimulatedKubelet") -> None:
        self._model = model()
        self._kubelet = held
        self._cards = [_Card(gpu) for gpu in gpus]
        for card in self._cards:
            for placed in card.seeded.layout:
                self._add(card, placed).filled = True
        self._seen: tuple[ObservedGpu, ...] | None = None

    def version(self) -> str:
        return "580.65.06"

    def count(self) -> int:
        return len(self._cards)

    def observe_gpu(self, index: int) -> ObservedGpu:
        return self._observed(index, self._cards[index])

    def observe(self, kept: Iterable[ObservedGpu] = ()) -> tuple[ObservedGpu, ...]:  # noqa: ARG002 - all are kept
        if self._seen is None:
            self._seen = super().observe()
        return self._seen

    def processes(self, gpu: ObservedGpu) -> tuple[GpuProcess, ...]:  # noqa: ARG002 - containers have none here
        return ()

    def create_gpu_instance(self, gpu_uuid: str, placed: Instance) -> int:
        card = self._card(gpu_uuid)
        created = Layout.of(one.placed for one in card.instances.values())
        problem = check_layout(self._model, created.union([placed]))
        if placed in created or problem is not None:
            raise RefusedError(f"creating {placed}", problem or "it is there already")
        self._add(card, placed)
        return card.next_id - 1

    def create_compute_instance(self, gpu_uuid: str, gpu_instance: int) -> None:
        self._card(gpu_uuid).instances[gpu_instance].filled = True
        self._seen = None

    def destroy_compute_instance(self, gpu_uuid: str, instance: GpuInstance, compute: ComputeInstance) -> None:
        created = self._card(gpu_uuid).instances[instance.id]
        if self._kubelet.holds(mig_uuid(gpu_uuid, created.placed)):
            raise InUseError(f"destroying compute instance {compute.id}", "a container uses it")
        created.filled = False
        self._seen = None

    def destroy_gpu_instance(self, gpu_uuid: str, instance: GpuInstance) -> None:
        del self._card(gpu_uuid).instances[instance.id]
        self._seen = None

    def set_compute_mode(self, gpu_uuid: str, mode: int) -> None:
        """These GPUs report none, so it is never called."""

    def release(self) -> None:
        """Nothing is held."""

    def _card(self, gpu_uuid: str) -> _Card:
        return next(card for card in self._cards if card.seeded.uuid == gpu_uuid)

    def _add(self, card: _Card, placed: Instance) -> _Created:
        made = card.instances[card.next_id] = _Created(placed)
        card.next_id += 1
        self._seen = None
        return made

    def _observed(self, index: int, card: _Card) -> ObservedGpu:
        mode = MigMode.ENABLED if card.seeded.mig else MigMode.DISABLED
        return ObservedGpu(
            index=index,
            uuid=card.seeded.uuid,
            name=self._model.names[0],
            model=self._model,
            mig_mode=mode,
            mig_mode_pending=mode,
            instances=tuple(self._instance(card, number, one) for number, one in sorted(card.instances.items())),
            health=Health.OK,
            processes=(),
        )

    def _instance(self, card: _Card, number: int, created: _Created) -> GpuInstance:
        spec = self._model.profile(created.placed.profile)
        slices = spec.compute_slices if spec else 0
        whole = ComputeInstance(id=0, slices=slices, uuid=mig_uuid(card.seeded.uuid, created.placed))
        compute = (whole,) if created.filled else ()
        return GpuInstance(id=number, placed=created.placed, compute_slices=slices, compute=compute)


def mig_uuid(gpu_uuid: str, placed: Instance) -> str:
    """The driver gives the next instance at a place the same one."""
    return f"MIG-{uuid.uuid5(uuid.NAMESPACE_URL, f'{gpu_uuid}/{placed}')}"


class SimulatedKubelet:
    """A `nodeagent.observed.witnesses.KubeletReader`, with the device plugin that feeds it. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._devices: Devices = {}
        """The healthy ones."""
        self._capacities: dict[str, int] = {}
        self._held: dict[PodKey, dict[str, Devices]] = {}

    def listed(self) -> Listed:
        with self._lock:
            return Listed(pods=dict(self._held))

    def allocatable(self) -> Allocatable:
        with self._lock:
            return Allocatable(ids=dict(self._devices))

    def checkpoint(self) -> tuple[CheckpointEntry, ...]:
        return ()

    def rival_sockets(self) -> tuple[str, ...]:
        return ()

    def shares_processes(self) -> bool:
        return True

    def identity(self) -> tuple[int, int] | None:
        return (1, 1)

    def seconds_since_start(self) -> float | None:
        return 3600.0

    def load(self, config: PluginConfig) -> dict[str, bool]:
        """The plugin lists what the config offers; which resources are registered. It never forgets one."""
        found: dict[str, list[str]] = {device.resource: [] for device in config.devices}
        for device in config.healthy():
            found[device.resource].append(device.id)
        listed = Counter(device.resource for device in config.advertised())
        with self._lock:
            self._devices = {**dict.fromkeys(self._devices, ()), **{name: tuple(ids) for name, ids in found.items()}}
            self._capacities = {name: listed[name] for name in sorted(self._devices)}
            return dict.fromkeys(self._devices, True)

    def admit(self, pod: NodePod) -> str:
        """Give a new pod its devices; else why the kubelet refuses it, which is permanent."""
        with self._lock:
            if pod.key in self._held:
                return ""
            taken = {i for container in self._held.values() for held in container.values() for i in _ids(held)}
            given: dict[str, Devices] = {}
            for container, amounts in pod.containers:
                for resource, count in amounts:
                    listed = self._devices.get(resource, ())
                    free = [i for i in listed if i not in taken][:count]
                    if len(free) < count:
                        return f"{count} {resource} requested, {len(listed)} listed, {len(free)} free"
                    taken.update(free)
                    given.setdefault(container, {})[resource] = tuple(free)
            self._held[pod.key] = given
            return ""

    def release(self, key: PodKey) -> None:
        """Its containers have ended."""
        with self._lock:
            self._held.pop(key, None)

    def holds(self, device_id: str) -> bool:
        """A container has it."""
        with self._lock:
            return any(device_id in _ids(held) for pod in self._held.values() for held in pod.values())

    def counts(self) -> dict[str, int]:
        """What the next status tick writes as allocatable."""
        with self._lock:
            return {resource: len(ids) for resource, ids in sorted(self._devices.items())}

    def capacities(self) -> dict[str, int]:
        """With the unhealthy ones: what it writes as capacity."""
        with self._lock:
            return dict(self._capacities)


def _ids(held: Mapping[str, tuple[str, ...]]) -> list[str]:
    return [device_id for ids in held.values() for device_id in ids]
