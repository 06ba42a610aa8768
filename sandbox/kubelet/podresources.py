"""Serves pod-resources: List and GetAllocatableResources.

Reads the pod book and the device table and answers what the real service answers, wrong answers included: empty before
the pods are known, nothing about plain init containers, and nothing about a container whose pod is gone. List frees
devices of ended pods as a side effect. One rate limit holds for all methods and clients. Get is not implemented, and
topology is not shown: the product uses neither.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import grpc

from kube.kubelet_api import podresources_pb2 as api
from kube.kubelet_api import podresources_pb2_grpc as services
from sandbox.kubelet.lifecycle import Entry
from sandbox.kubelet.parts import KubeletParts
from sandbox.kubelet.pods import Role
from sandbox.kubelet.selection import shuffled


class RateLimit:
    """A token bucket, full at first."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._lock = threading.Lock()
        self._tokens = float(burst)
        self._filled_at = clock()

    def admit(self) -> bool:
        with self._lock:
            now = self._clock()
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._per_second)
            self._filled_at = now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True


@dataclass(eq=False, kw_only=True)
class PodResources(services.PodResourcesListerServicer):
    parts: KubeletParts
    free_inactive: Callable[[], None]
    limit: RateLimit

    def List(  # noqa: N802 - the name in the proto
        self,
        request: api.ListPodResourcesRequest,  # noqa: ARG002 - it has no fields
        context: grpc.ServicerContext,
    ) -> api.ListPodResourcesResponse:
        self._admit(context)
        self.free_inactive()
        return api.ListPodResourcesResponse(pod_resources=[self._pod(entry) for entry in self.parts.book.active()])

    def GetAllocatableResources(  # noqa: N802 - the name in the proto
        self,
        request: api.AllocatableResourcesRequest,  # noqa: ARG002 - it has no fields
        context: grpc.ServicerContext,
    ) -> api.AllocatableResourcesResponse:
        self._admit(context)
        devices = [
            api.ContainerDevices(resource_name=resource, device_ids=[device_id])
            for resource, listed in self.parts.table.healthy_ids().items()
            for device_id in shuffled(listed, self.parts.random)
        ]
        return api.AllocatableResourcesResponse(devices=devices)

    def _admit(self, context: grpc.ServicerContext) -> None:
        if not self.limit.admit():
            _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")

    def _pod(self, entry: Entry) -> api.PodResources:
        containers = [
            api.ContainerResources(
                name=container.name,
                devices=self._held(entry.pod.uid, container.name),
                dynamic_resources=self.parts.claims.of_container(entry.pod, container.claims),
            )
            for container in entry.pod.containers
            if container.role is not Role.INIT
        ]
        return api.PodResources(name=entry.pod.name, namespace=entry.pod.namespace, containers=containers)

    def _held(self, pod_uid: str, container: str) -> list[api.ContainerDevices]:
        """One entry per device, in no order."""
        pairs = [
            (resource, device_id)
            for resource, holding in sorted(self.parts.table.holdings_of(pod_uid, container).items())
            for device_id in sorted(holding.device_ids)
        ]
        self.parts.random.shuffle(pairs)
        return [
            api.ContainerDevices(
                resource_name=resource,
                device_ids=[device_id],
            )
            for resource, device_id in pairs
        ]


def _abort(context: grpc.ServicerContext, code: grpc.StatusCode, text: str) -> NoReturn:
    context.abort(code, text)
    raise AssertionError("abort raises")
