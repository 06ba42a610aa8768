"""Holds back pods that name their node until that node advertises what they request.

Takes pod manifests with a nodeName and creates each as soon as its node exists and has enough allocatable; the kubelet
would otherwise run it without its devices, since it knows no resource before a plugin has registered it. A pod that is
held for long carries a reason, and goes on waiting.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from kubernetes.client import ApiClient

from kube import apply
from kube.errors import ApiError, NotFound
from kube.quantities import to_int
from sandbox.loop import Loop
from sandbox.settle import slices_asked

LOOK_SECONDS = 0.1
EXPLAIN_SECONDS = 30.0
Body = dict[str, Any]


class HeldPods:
    """`add` pods, `start`, `stop`; `bodies` are those that still wait."""

    def __init__(self, api: ApiClient, post: Callable[[Body], object], *, report: Callable[[str], None]) -> None:
        """`post` creates a pod and raises where the API server refuses it."""
        self._api = api
        self._post = post
        self._report = report
        self._pods: list[Body] = []
        self._explained: dict[int, str] = {}
        self.placed = threading.Event()
        """Every pod is created, or carries why it must wait longer; also after `stop`."""
        self._loop = Loop("held-pods")

    def add(self, pod: Body) -> None:
        """Hold one pod; before `start`."""
        self._pods.append(pod)

    def start(self) -> None:
        """Begin to watch their nodes."""
        explain_at = time.monotonic() + EXPLAIN_SECONDS
        self._loop.post(lambda: self._look(explain_at))
        self._loop.start()

    def stop(self) -> None:
        """Create no more pods."""
        self.placed.set()
        self._loop.stop(join_seconds=2.0)

    def bodies(self) -> list[Body]:
        """As pods that are bound to their node and do not run; those that waited for long say why."""
        return [self._shown(pod) for pod in list(self._pods)]

    def _shown(self, pod: Body) -> Body:
        status = {"phase": "Pending"}
        if why := self._explained.get(id(pod)):
            status |= {"reason": "NotOffered", "message": why}
        return {**pod, "metadata": {"namespace": "default", "uid": "", **pod["metadata"]}, "status": status}

    def _look(self, explain_at: float) -> None:
        for pod in list(self._pods):
            why = self._obstacle(pod)
            if not why:
                self._create(pod)
            elif time.monotonic() >= explain_at:
                self._explained[id(pod)] = why
        if all(id(pod) in self._explained for pod in self._pods):
            self.placed.set()
        if self._pods:
            self._loop.after(LOOK_SECONDS, lambda: self._look(explain_at))

    def _create(self, pod: Body) -> None:
        try:
            self._post(pod)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other pods must not wait for ever
            self._report(f"pod {pod['metadata']['name']}: {error}")
        self._pods.remove(pod)

    def _obstacle(self, pod: Mapping[str, Any]) -> str:
        """Why the pod must wait; empty when it need not."""
        name = pod["spec"]["nodeName"]
        try:
            node = apply.get(self._api, f"/api/v1/nodes/{name}")
        except NotFound:
            return f"there is no node {name}: correct spec.nodeName, or leave it out"
        except ApiError as error:
            return error.message
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        short = sorted(
            f"{amount} x {resource}"
            for resource, amount in slices_asked(pod["spec"]["containers"]).items()
            if to_int(allocatable.get(resource, 0)) < amount
        )
        if not short:
            return ""
        return (
            f"node {name} does not offer {', '.join(short)}: pin it in the node's GPUPartitionPlan, "
            "or leave spec.nodeName out and gpuplan plans it"
        )
