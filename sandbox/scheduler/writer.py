"""The scheduler's writes: binds, conditions and Events, on a thread of their own so that a slow API delays no decision.

Writes are made in order; a newer one about a pod replaces one that has not begun, so that a backlog is never older than
the last decision. The result of a bind is passed to the callback, from the writing thread.
"""

from collections.abc import Callable
from typing import Any

from kubernetes.client import ApiClient

from kube import apply
from kube.errors import ApiError
from kube.events import EventRecorder
from kube.timestamps import api_time
from sandbox.loop import Loop
from sandbox.scheduler.records import PodRecord
from sandbox.writes import Writes, patch_pod_status, path_of, reference

EVENT_QUEUE_SIZE = 20_000
# The same sentence about the same pod is counted, not written again, for this long.
EVENT_QUIET_SECONDS = 120.0


class Writer:
    def __init__(self, api: ApiClient, component: str) -> None:
        self._api = api
        self._events = EventRecorder(api, component, queue_size=EVENT_QUEUE_SIZE, quiet_seconds=EVENT_QUIET_SECONDS)
        self._loop = Loop(f"{component} writes")
        self._writes = Writes(self._loop)

    def start(self) -> None:
        self._events.start()
        self._loop.start()

    def stop(self) -> None:
        self._loop.stop(join_seconds=2.0)
        self._events.stop()

    def bind(self, pod: PodRecord, node: str, done: Callable[[ApiError | None], None]) -> None:
        self._writes.submit(pod.view.uid, lambda: self._bind(pod, node, done))

    def report_unschedulable(self, pod: PodRecord, message: str, *, reason: str = "Unschedulable") -> None:
        """The condition, and the end of a nomination that did not hold; the Event."""
        self._events.emit(reference(pod.view), "Warning", "FailedScheduling", message)
        if message != pod.reported or pod.view.nominated_node:
            self._writes.submit(pod.view.uid, lambda: self._write_condition(pod, message, reason))

    def _bind(self, pod: PodRecord, node: str, done: Callable[[ApiError | None], None]) -> None:
        view = pod.view
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": view.name, "namespace": view.namespace, "uid": view.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            apply.create(self._api, f"{path_of(view)}/binding", body)
        except ApiError as error:
            done(error)
            return
        done(None)
        text = f"Successfully assigned {view.namespace}/{view.name} to {node}"
        self._events.emit(reference(view), "Normal", "Scheduled", text)

    def _write_condition(self, pod: PodRecord, message: str, reason: str) -> None:
        condition: dict[str, Any] = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
            "lastProbeTime": None,
        }
        if pod.generation:
            condition["observedGeneration"] = pod.generation
        if not pod.reported:
            condition["lastTransitionTime"] = api_time()
        status: dict[str, Any] = {"conditions": [condition]}
        if pod.view.nominated_node:
            status["nominatedNodeName"] = None
        patch_pod_status(self._api, pod.view, status)
