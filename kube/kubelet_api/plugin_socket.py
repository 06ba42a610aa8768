"""Asks a device plugin's socket whether it answers at all.

Takes the path; returns whether there was an answer within the time, of whatever status. The question is which of some
devices to prefer that no plugin has: it changes nothing there. Keeps no channel.
"""

from pathlib import Path

import grpc

from kube.kubelet_api import deviceplugin_pb2 as pb
from kube.kubelet_api import deviceplugin_pb2_grpc as rpc
from kube.kubelet_api.allocatable import CHANNEL_OPTIONS
from kube.kubelet_api.paths import unix_target

NO_ANSWER = (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)


def answers(socket: Path, *, timeout_seconds: float) -> bool:
    """Not by GetDevicePluginOptions: a plugin may take that for the kubelet's."""
    impossible = pb.ContainerPreferredAllocationRequest(available_deviceIDs=["no device"], allocation_size=1)
    question = pb.PreferredAllocationRequest(container_requests=[impossible])
    with grpc.insecure_channel(unix_target(socket), options=CHANNEL_OPTIONS) as channel:
        try:
            rpc.DevicePluginStub(channel).GetPreferredAllocation(question, timeout=timeout_seconds)
        except grpc.RpcError as error:
            return error.code() not in NO_ANSWER
    return True
