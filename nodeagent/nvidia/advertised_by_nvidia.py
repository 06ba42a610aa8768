"""Describes what NVIDIA's device plugin serves, as the config that our own plugin would have for the same devices.

Takes the ids that the kubelet registered, returns a `PluginConfig`, by which usage, status and metrics read the node as
they read one of ours. The kubelet is the only record: nothing is remembered here of what was once asked for. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodeagent.handover.config import Device, DeviceKind, PluginConfig
from nodeagent.hardware.driver import ObservedGpu
from nodeagent.hardware.partitions import whole
from nodeagent.observed.kubelet import Held
from partitioning.nvidia_plugin import NodeConfig
from partitioning.resources import SHARED, WHOLE


def advertised_by_nvidia(ids: Held, gpus: Iterable[ObservedGpu]) -> PluginConfig:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """What the kubelet has of a config; it lists no device that is Unhealthy."""

    exact: bool
    """All of the GPUs that can be read, and none of another config."""
    count: int
    foreign: bool
    """Something that this config does not have: the plugin has loaded another one."""


def registered(config: NodeConfig, ids: Held, gpus: Iterable[ObservedGpu]) -> Registered:
    """Judges the ids of NVIDIA's two resources, as the kubelet showed them last: a broken GPU stops no other."""
    readable = [gpu.uuid for gpu in gpus if not gpu.problem]
    desired = frozenset().union(*(config.ids(uuid) for uuid in readable))
    found, other = ids.get(config.resource, ()), ids.get(SHARED if config.resource == WHOLE else WHOLE, ())
    mine = {device_id for device_id in (*found, *other) if device_id.partition("::")[0] in readable}
    foreign = bool(other) or not all(config.has(device_id) for device_id in found)
    return Registered(exact=mine == desired and not foreign, count=len(found), foreign=foreign)
