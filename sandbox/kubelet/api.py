"""Connects a kubelet to the API server.

Reads frozen pods and nodes from two watches; writes status patches, final deletions, Events and the node's Lease.
`ClusterApi` is all that the rest of the kubelet knows of the API. A write never raises: it
returns whether it was done, is pointless now, or may work later.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Literal, Protocol

from kubernetes.client import ApiClient

from kube import apply, errors
from kube.events import EventRecorder, ObjectReference
from kube.leases import Heartbeat
from kube.reflector import Reflector
from kube.transport import request
from sandbox.kubelet.node_status import NodeReading, read_node
from sandbox.kubelet.pods import Pod, parse_pod

Json = Mapping[str, Any]
PodChange = Callable[[Pod | None, Pod | None], None]
NodeChange = Callable[[NodeReading | None], None]
log = logging.getLogger(__name__)


class Outcome(StrEnum):
    DONE = "done"
    POINTLESS = "pointless"
    """The object is gone or another one now, or the server refuses what was sent."""
    LATER = "later"


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

    def watch_pods(self, node_name: str, on_change: PodChange) -> Watch:
        """Old and new of each change, in the server's order, from one thread."""
        return Reflector(
            self._client,
            "/api/v1/pods",
            params={"fieldSelector": f"spec.nodeName={node_name}"},
            project=parse_pod,
            on_change=lambda _, old, new: on_change(old, new),
        )

    def watch_node(self, node_name: str, on_change: NodeChange) -> Watch:
        return Reflector(
            self._client,
            "/api/v1/nodes",
            params={"fieldSelector": f"metadata.name={node_name}"},
            project=read_node,
            on_change=lambda _, __, new: on_change(new),
        )

    def patch_pod_status(self, pod: Pod, status: Json) -> Outcome:
        # The uid is a precondition: a pod of the same name that came since keeps its own status.
        body = {"metadata": {"uid": pod.uid}, "status": status}
        path = f"{_path(pod)}/status"
        return _outcome(f"status of pod {pod.title}", lambda: self._strategic_patch(path, body))

    def delete_pod(self, pod: Pod) -> Outcome:
        """The last step of a graceful deletion: grace 0, this uid only."""
        return _outcome(
            f"deletion of pod {pod.title}",
            lambda: apply.delete(self._client, _path(pod), uid=pod.uid, grace_seconds=0),
        )

    def patch_node_status(self, node_name: str, patch: Json) -> Outcome:
        path = f"/api/v1/nodes/{node_name}/status"
        return _outcome(f"status of node {node_name}", lambda: self._strategic_patch(path, patch))

    def renew_lease(self, node_name: str) -> Outcome:
        return _outcome(f"lease of node {node_name}", self._lease.beat)

    def emit(self, pod: Pod, event_type: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        about = ObjectReference(api_version="v1", kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid)
        if self._events is not None:
            self._events.emit(about, event_type, reason, message)

    def _strategic_patch(self, path: str, body: Json) -> None:
        request(self._client, "PATCH", path, body=dict(body), content_type="application/strategic-merge-patch+json")


def _path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"


def _outcome(what: str, call: Callable[[], object]) -> Outcome:
    try:
        call()
    except (errors.NotFound, errors.Conflict):
        return Outcome.POINTLESS
    except errors.Unavailable as error:
        log.debug("%s: %s", what, error)
        return Outcome.LATER
    except errors.ApiError as error:
        log.warning("%s was refused: %s", what, error)
        return Outcome.POINTLESS
    return Outcome.DONE
