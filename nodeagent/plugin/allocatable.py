"""Which device ids the kubelet has taken: one question to pod-resources, with every failure read as "unknown".

In goes the socket, out come the healthy ids by resource, or None. The kubelet's rate limit is shared by all callers on
the node, so ask seldom.
"""

from collections.abc import Mapping
from pathlib import Path

import grpc

from kube.kubelet_api import podresources_pb2 as pb
from kube.kubelet_api import podresources_pb2_grpc as rpc
from kube.kubelet_api.paths import unix_target

# A channel of its own each time, with nothing shared: a shared one would remember an earlier failure and wait.
CHANNEL_OPTIONS = (("grpc.use_local_subchannel_pool", 1),)


def read_allocatable(socket: Path, *, timeout_seconds: float) -> Mapping[str, frozenset[str]] | None:
    with grpc.insecure_channel(unix_target(socket), options=CHANNEL_OPTIONS) as channel:
        lister = rpc.PodResourcesListerStub(channel)
        try:
            answer = lister.GetAllocatableResources(pb.AllocatableResourcesRequest(), timeout=timeout_seconds)
        except grpc.RpcError:
            return None
    ids: dict[str, set[str]] = {}
    for entry in answer.devices:
        ids.setdefault(entry.resource_name, set()).update(entry.device_ids)
    return {resource: frozenset(found) for resource, found in sorted(ids.items())}
