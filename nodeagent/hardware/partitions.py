"""Lists what exists on a GPU that a pod can hold: MIG instances, MPS slices, or the GPU as a whole.

Takes the observed GPU and the device plugin's config, returns `Partition`s. MIG instances exist in hardware. MPS slices
and whole GPUs exist because they are advertised, so the plugin's config is their record, together with the ids that
pods were observed to hold. Decides nothing.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

from nodeagent.handover.config import Device, DeviceKind, PluginConfig
from nodeagent.hardware.driver import GpuInstance, ObservedGpu
from partitioning.layouts import Instance
from partitioning.mps import MpsSlice, slice_of_gb, units_of_gib
from partitioning.resources import WHOLE, mig_resource

_REPLICA_ID = re.compile(r"GPU-[0-9a-f-]+::(?P<number>\d+)")
_SLICE_ID = re.compile(r"(?P<gpu>GPU-[0-9a-f-]+)::(?P<size>[1-9]\d*)(?P<unit>gb|gib)::(?P<number>\d+)")
_DEVICE_FIELDS = tuple(field.name for field in fields(Device))


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition(Device):
    """One device id of the kubelet, with what it is on the GPU."""

    placed: Instance | None = None
    """Of a MIG instance."""
    advertisable: bool = True
    """False where a MIG instance has compute instances that are not ours: it is reported and left alone."""

    @property
    def label(self) -> str:
        """Profile or size, for people and metrics."""
        if self.placed is not None:
            return self.placed.profile
        found = _SLICE_ID.fullmatch(self.id)
        if found:
            return f"{found['size']}{found['unit']}"
        return "replica" if self.is_replica else "whole" if self.kind is DeviceKind.WHOLE else self.id

    @property
    def number(self) -> int:
        """Which of several equal MPS slices."""
        found = _SLICE_ID.fullmatch(self.id) or _REPLICA_ID.fullmatch(self.id)
        return int(found["number"]) if found else 0

    @property
    def is_replica(self) -> bool:
        """One of several equal parts of the whole GPU."""
        return self.kind is DeviceKind.MPS and _REPLICA_ID.fullmatch(self.id) is not None

    @property
    def rank(self) -> tuple[int, str, int, str]:
        """By place, then size and number."""
        return (self.placed.start if self.placed else 0, self.resource, self.number, self.id)

    @property
    def title(self) -> str:
        """As a sentence names it."""
        if self.placed is not None:
            return str(self.placed)
        if self.is_replica:
            return f"MPS replica number {self.number}"
        return "the whole GPU" if self.kind is DeviceKind.WHOLE else f"MPS slice {self.label} number {self.number}"

    def used_through(self, device_id: str) -> bool:
        """Whether the holder of `device_id`, a device id of any device plugin, may use this partition.

        Other plugins build their ids around the UUID (`MIG-<uuid>::0`, `GPU-<uuid>::10::0`, `GPU-<uuid>-_-3`), and how
        much of the device such an id covers is not known: it counts for the MIG device, or for all of the GPU.
        """
        if device_id == self.id:
            return True
        if self.gpu in device_id:
            return self.kind is not DeviceKind.MPS or _SLICE_ID.fullmatch(device_id) is None  # not another slice's
        return self.kind is DeviceKind.MIG and self.id in device_id

    @property
    def device(self) -> Device:
        """Its entry in the device plugin's config."""
        return Device(**{name: getattr(self, name) for name in _DEVICE_FIELDS})


def whole(gpu: ObservedGpu) -> Partition:
    """The GPU itself."""
    memory_mib = gpu.model.memory_mib if gpu.model else 0
    return Partition(id=gpu.uuid, resource=WHOLE, gpu=gpu.uuid, kind=DeviceKind.WHOLE, memory_mib=memory_mib)


def mps_partition(gpu_uuid: str, share: MpsSlice, number: int) -> Partition:
    """One MPS slice; its id has everything but the threads."""
    return Partition(
        id="::".join(filter(None, (gpu_uuid, share.label, str(number)))),
        resource=share.resource,
        gpu=gpu_uuid,
        kind=DeviceKind.MPS,
        memory_mib=share.memory_mib,
        thread_percent=share.thread_percent,
        mergeable=share.mergeable,
    )


def held_replicas(gpu_uuid: str, shares: Sequence[MpsSlice], held: Iterable[str]) -> tuple[Partition, ...]:
    """Those of `shares`, the equal parts of this GPU, that pods hold. A higher number is another device plugin's."""
    matches = (_REPLICA_ID.fullmatch(i) for i in held if i.startswith(f"{gpu_uuid}::"))
    numbers = sorted(int(found["number"]) for found in matches if found)
    return tuple(mps_partition(gpu_uuid, shares[n], n) for n in numbers if n < len(shares))


def mig_partition(gpu: ObservedGpu, instance: GpuInstance) -> Partition | None:
    """None for a half-made instance: there is no MIG device that a pod could hold."""
    if instance.half_made:
        return None
    spec = gpu.model.profile(instance.placed.profile) if gpu.model else None
    return Partition(
        id=instance.uuid or instance.compute[0].uuid,
        resource=mig_resource(instance.placed.profile),
        gpu=gpu.uuid,
        kind=DeviceKind.MIG,
        memory_mib=(spec.memory_mib or 0) if spec else 0,
        placed=instance.placed,
        advertisable=instance.uuid is not None,
    )


def existing(gpu: ObservedGpu, config: PluginConfig, held: Iterable[str]) -> tuple[Partition, ...]:
    """Everything on one GPU that a pod holds or could hold, sorted by place, then id."""
    recorded = [device for device in config.devices if device.gpu == gpu.uuid]
    if gpu.problem:
        # It cannot be read now: what was advertised of it before is all we know.
        found = [of_device(device) for device in recorded]
    elif gpu.mig_enabled:
        found = [partition for instance in gpu.instances if (partition := mig_partition(gpu, instance))]
    else:
        by_id = {device.id: of_device(device) for device in recorded if device.kind is not DeviceKind.MIG}
        for device_id in [*config.withdrawn, *held]:
            partition = _of_id(gpu, device_id)
            if partition is not None:
                by_id.setdefault(device_id, partition)
        found = list(by_id.values())
    return tuple(sorted(found, key=lambda partition: partition.rank))


def of_device(device: Device) -> Partition:
    return Partition(**{name: getattr(device, name) for name in _DEVICE_FIELDS})


def _of_id(gpu: ObservedGpu, device_id: str) -> Partition | None:
    """A partition of this GPU that the config has forgotten, from its id."""
    if device_id == gpu.uuid:
        return whole(gpu)
    found = _SLICE_ID.fullmatch(device_id)
    if found is None or found["gpu"] != gpu.uuid:
        return None
    share = slice_of_gb(int(found["size"])) if found["unit"] == "gb" else units_of_gib(1)[0]
    return mps_partition(gpu.uuid, share, int(found["number"]))
