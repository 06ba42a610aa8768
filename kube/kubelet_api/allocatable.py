"""Reads from the kubelet which device ids it has registered: pod-resources, GetAllocatableResources.

Takes an answer, or the socket to put the question to; returns ids by resource. Unhealthy devices are never among them.
Keeps no channel.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import grpc

from kube.kubelet_api import podresources_pb2 as messages
from kube.kubelet_api import podresources_pb2_grpc as rpc
from kube.kubelet_api.paths import unix_target

CHANNEL_OPTIONS = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 64 << 20))
"""For a channel of its own each time, with nothing shared: a shared one would remember an earlier failure and wait."""


@contextmanager
def pod_resources(socket: Path) -> Iterator[rpc.PodResourcesListerStub]:
    """For one question: the next kubelet makes its socket again."""
    with grpc.insecure_channel(unix_target(socket), options=CHANNEL_OPTIONS) as channel:
        yield rpc.PodResourcesListerStub(channel)


def ids_by_resource(devices: Iterable[messages.ContainerDevices]) -> dict[str, tuple[str, ...]]:
    """One entry per device and none per resource, in random order: group and sort."""
    found: dict[str, set[str]] = {}
    for entry in devices:
        found.setdefault(entry.resource_name, set()).update(entry.device_ids)
    return {resource: tuple(sorted(ids)) for resource, ids in sorted(found.items())}


def read_allocatable(socket: Path, *, timeout_seconds: float) -> Mapping[str, frozenset[str]] | None:
    """None where the kubelet gives no answer. Its rate limit is shared by all callers on the node: call it seldom."""
    try:
        with pod_resources(socket) as kubelet:
            answer = kubelet.GetAllocatableResources(messages.AllocatableResourcesRequest(), timeout=timeout_seconds)
    except grpc.RpcError:
        return None
    return {resource: frozenset(ids) for resource, ids in ids_by_resource(answer.devices).items()}
