"""Describes what NVIDIA's device plugin serves, as the config that our own plugin would have for the same devices.

Takes the ids that the kubelet registered, returns a `PluginConfig`, by which usage, status and metrics read the node as
they read one of ours. The kubelet is the only record: nothing is remembered here of what was once asked for. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nodeagent.handover.config import Device, DeviceKind, PluginConfig
from nodeagent.hardware.driver import ObservedGpu
from nodeagent.hardware.partitions import whole
from nodeagent.observed.kubelet import Held
from partitioning.nvidia_plugin import NodeConfig
from partitioning.resources import SHARED, WHOLE


def served(ids: Held, gpus: Iterable[ObservedGpu]) -> PluginConfig:
    """The devices of these GPUs; ids of any other form than NVIDIA's are left out."""
    by_resource = {resource: ids.get(resource, ()) for resource in (WHOLE, SHARED)}
    return PluginConfig.of(device for gpu in gpus for device in _of(gpu, by_resource))


def _of(gpu: ObservedGpu, ids: Mapping[str, Iterable[str]]) -> Iterable[Device]:
    mine = [(resource, i) for resource, found in ids.items() for i in found if i.partition("::")[0] == gpu.uuid]
    shares = sum("::" in device_id for _, device_id in mine)
    memory_mib = gpu.model.memory_mib if gpu.model else 0
    for resource, device_id in mine:
        if "::" not in device_id:
            yield whole(gpu).device
            continue
        yield Device(
            id=device_id,
            resource=resource,
            gpu=gpu.uuid,
            kind=DeviceKind.MPS,
            memory_mib=memory_mib // shares,
            thread_percent=max(1, 100 // shares),
        )


def exactly(config: NodeConfig, ids: Held, gpus: Iterable[ObservedGpu]) -> bool:
    """Whether the kubelet has exactly these ids of the GPUs that can be read: a broken one stops no other."""
    readable = [gpu.uuid for gpu in gpus if not gpu.problem]
    found = {
        resource: {device_id for device_id in ids.get(resource, ()) if device_id.partition("::")[0] in readable}
        for resource in (WHOLE, SHARED)
    }
    desired = frozenset().union(*(config.ids(uuid) for uuid in readable))
    return found.pop(config.resource) == desired and not any(found.values())
