"""Connects a kubelet to the API server.

Reads frozen pods and nodes from two watches; writes status patches, final deletions, Events and the node's Lease.
`ClusterApi` is all that the rest of the kubelet knows of the API.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from kubernetes.client import ApiClient

from crds.v1alpha1 import paths
from kube import apply
from kube.events import EventRecorder
from kube.leases import Heartbeat
from kube.reflector import Reflector
from sandbox import writes
from sandbox.kubelet.node_status import NodeReading, read_node
from sandbox.kubelet.pods import Pod, parse_pod

Json = Mapping[str, Any]
PodChange = Callable[[Pod | None, Pod | None], None]
NodeChange = Callable[[NodeReading | None], None]


class Watch(Protocol):
    synced: threading.Event

    def start(self) -> None: ...
    def stop(self) -> None: ...


class ClusterApi:
    """One node's kubelet at a real or embedded API server."""

    def __init__(self, client: ApiClient, node_name: str) -> None:
        self._client = client
        self._node_name = node_name
        self._events: EventRecorder | None = None
        self._lease = Heartbeat(
            client, namespace="kube-node-lease", name=node_name, identity=node_name, manager="kubelet"
        )

    def start(self) -> None:
        """Again after `stop`, too: a restarted kubelet may keep its client."""
        self._events = EventRecorder(self._client, "kubelet", instance=self._node_name)
        self._events.start()

    def stop(self) -> None:
        if self._events is not None:
            self._events.stop()

    def watch_pods(self, on_change: PodChange) -> Watch:
        """Old and new of each change, in the server's order, from one thread."""
        return Reflector(
            self._client,
            "/api/v1/pods",
            params={"fieldSelector": f"spec.nodeName={self._node_name}"},
            project=parse_pod,
            on_change=lambda _, old, new: on_change(old, new),
        )

    def watch_node(self, on_change: NodeChange) -> Watch:
        return Reflector(
            self._client,
            "/api/v1/nodes",
            params={"fieldSelector": f"metadata.name={self._node_name}"},
            project=read_node,
            on_change=lambda _, __, new: on_change(new),
        )

    def patch_pod_status(self, pod: Pod, status: Json) -> None:
        writes.patch_pod_status(self._client, pod, status)

    def delete_pod(self, pod: Pod) -> None:
        """The last step of a graceful deletion: grace 0, this uid only."""
        apply.delete(self._client, writes.path_of(pod), uid=pod.uid, grace_seconds=0)

    def patch_node_status(self, patch: Json) -> None:
        writes.patch(self._client, f"{paths.node(self._node_name)}/status", patch)

    def renew_lease(self) -> None:
        self._lease.beat()

    def emit(self, pod: Pod, event_type: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        if self._events is not None:
            self._events.emit(writes.reference(pod), event_type, reason, message)
