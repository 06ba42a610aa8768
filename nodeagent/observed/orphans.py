"""Pods that hold a device which no longer exists: a destroyed MIG instance (by hand, by a reboot) or a missing card.

Takes the ids that pods hold, the GPUs and the devices that were advertised; returns such pods by GPU. Remembers on
which GPU an id was, because nothing else shows it once the device is gone. Silent while any GPU cannot be read.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from nodeagent.handover.config import Device
from nodeagent.hardware.driver import ObservedGpu

_UUID = re.compile(r"(?:MIG|GPU)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
Orphans = tuple[tuple[str, str], ...]
"""Device id and pod (namespace/name), sorted."""


def orphans(held: Mapping[str, str], gpus: Iterable[ObservedGpu]) -> Orphans:
    """Held ids of any device plugin that are built around the UUID of a MIG device or GPU that is not here."""
    found = tuple(gpus)
    if not found or any(gpu.problem for gpu in found):
        return ()
    here = {gpu.uuid for gpu in found}
    here |= {compute.uuid for gpu in found for instance in gpu.instances for compute in instance.compute}
    named = ((device_id, _UUID.search(device_id)) for device_id in sorted(held))
    return tuple((device_id, held[device_id]) for device_id, match in named if match and match[0] not in here)


class OrphanBook:
    def __init__(self) -> None:
        self._gpu_of: dict[str, str] = {}

    def by_gpu(
        self, held: Mapping[str, str], gpus: Sequence[ObservedGpu], advertised: Iterable[Device]
    ) -> Mapping[str, Orphans]:
        """By UUID of the GPU that had the device; of the first GPU where that is not known any more."""
        known = {device_id: gpu for device_id, gpu in self._gpu_of.items() if device_id in held}
        self._gpu_of = known | {device.id: device.gpu for device in advertised}
        uuids = [gpu.uuid for gpu in gpus]
        found: dict[str, Orphans] = {}
        for device_id, pod in orphans(held, gpus):
            gpu = self._gpu_of.get(device_id, "")
            gpu = gpu if gpu in uuids else uuids[0]
            found[gpu] = (*found.get(gpu, ()), (device_id, pod))
        return found
