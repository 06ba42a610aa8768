"""The scheduler's writes: binds, conditions and Events, on a thread of their own so that a slow API delays no decision.

Writes are made in order; a newer one about a pod replaces one that has not begun, so that a backlog is never older than
the last decision. The result of a bind is passed to the callback, from the writing thread.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from kubernetes.client import ApiClient

from kube import apply
from kube.errors import ApiError, Conflict, NotFound, Unavailable
from kube.events import EventRecorder, ObjectReference
from kube.timestamps import api_time
from kube.transport import request
from sandbox.scheduler.records import PodRecord

log = logging.getLogger(__name__)

RETRIES = 10
RETRY_SECONDS = 0.5
EVENT_QUEUE_SIZE = 20_000
# The same sentence about the same pod is counted, not written again, for this long.
EVENT_QUIET_SECONDS = 120.0
STRATEGIC = "application/strategic-merge-patch+json"

Job = Callable[[], None]


class Writer:
    def __init__(self, api: ApiClient, component: str) -> None:
        self._api = api
        self._events = EventRecorder(api, component, queue_size=EVENT_QUEUE_SIZE, quiet_seconds=EVENT_QUIET_SECONDS)
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._changed = threading.Condition()
        self._quit = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"{component} writes")

    def start(self) -> None:
        self._events.start()
        self._thread.start()

    def stop(self) -> None:
        self._quit.set()
        with self._changed:
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(2.0)
        self._events.stop()

    def bind(self, pod: PodRecord, node: str, done: Callable[[ApiError | None], None]) -> None:
        self._submit(pod, lambda: self._bind(pod, node, done))

    def report_unschedulable(self, pod: PodRecord, message: str, *, reason: str = "Unschedulable") -> None:
        """The condition, and the end of a nomination that did not hold; the Event."""
        self._events.emit(_reference(pod), "Warning", "FailedScheduling", message)
        if message != pod.reported or pod.view.nominated_node:
            self._submit(pod, lambda: self._write_condition(pod, message, reason))

    def _submit(self, pod: PodRecord, job: Job) -> None:
        with self._changed:
            self._jobs[pod.view.uid] = job
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._jobs and not self._quit.is_set():
                    self._changed.wait()
                if self._quit.is_set():
                    return
                uid, job = self._jobs.popitem(last=False)
            self._do(uid, job)

    def _do(self, uid: str, job: Job) -> None:
        for _ in range(RETRIES):
            try:
                job()
            except Unavailable as error:
                log.debug("write about pod %s: %s", uid, error)
                with self._changed:
                    if uid in self._jobs:
                        return
                if self._quit.wait(RETRY_SECONDS):
                    return
                continue
            except Exception:
                log.exception("write about pod %s failed", uid)
            return

    def _bind(self, pod: PodRecord, node: str, done: Callable[[ApiError | None], None]) -> None:
        view = pod.view
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": view.name, "namespace": view.namespace, "uid": view.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            apply.create(self._api, f"{_path(pod)}/binding", body)
        except ApiError as error:
            done(error)
            return
        done(None)
        text = f"Successfully assigned {view.namespace}/{view.name} to {node}"
        self._events.emit(_reference(pod), "Normal", "Scheduled", text)

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
        body = {"metadata": {"uid": pod.view.uid}, "status": status}
        try:
            request(self._api, "PATCH", f"{_path(pod)}/status", body=body, content_type=STRATEGIC)
        except (NotFound, Conflict):
            return  # the pod is gone, or another one has its name


def _path(pod: PodRecord) -> str:
    return f"/api/v1/namespaces/{pod.view.namespace}/pods/{pod.view.name}"


def _reference(pod: PodRecord) -> ObjectReference:
    view = pod.view
    return ObjectReference(api_version="v1", kind="Pod", name=view.name, namespace=view.namespace, uid=view.uid)
