"""Asks the API server which pods this node has now: a watch may be late, and an absence in it proves nothing.

Takes a client and the node's name, returns its pods, or a `NoAnswer` with the reason. Without a resource version, so
that the answer is what most of etcd has agreed on, never what one server remembers. `caught_up` brings a moment of the
watch up to such an answer. Never forgets a pod: one that is gone before it was seen to end counts as vanished, as it
does by the watch.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeAlias

from kubernetes.client import ApiClient

from crds.v1alpha1 import paths
from kube.budget import RequestBudget
from kube.errors import ApiError
from kube.transport import request
from nodeagent.hardware.gpu_ids import GpuResources
from nodeagent.observed.kubelet import NoAnswer
from nodeagent.observed.pods import NodePod, ObservedPods, kubelet_uid, parse_pod

FreshPods: TypeAlias = Callable[[], tuple[NodePod, ...] | NoAnswer]
"""This node's pods, read from the API server itself now."""


def fresh_pods(
    api: ApiClient, node_name: str, budget: RequestBudget, resources: GpuResources
) -> tuple[NodePod, ...] | NoAnswer:
    query = {"fieldSelector": f"spec.nodeName={node_name}"}
    try:
        with budget.request() as timeouts:
            answer = json.loads(request(api, "GET", paths.PODS, query=query, timeouts=timeouts))
            return tuple([_read(pod, resources) for pod in answer["items"]])
    except (ApiError, ValueError, LookupError, TypeError, AttributeError) as error:
        return NoAnswer(reason=f"the API server does not list the pods of this node: {error}")


def _read(raw: dict[str, Any], resources: GpuResources) -> NodePod:
    try:
        return parse_pod(raw, resources)
    except Exception:  # noqa: BLE001 - as the watch, which keeps what was known of it
        # It is there, and without its name it explains nothing that the kubelet lists.
        return NodePod(uid=kubelet_uid(raw["metadata"]), namespace="", name="")


def caught_up(pods: ObservedPods, fresh: Iterable[NodePod]) -> ObservedPods:
    """`pods` with those that are new in `fresh`, that ended there, and that are gone."""
    now = {pod.uid: pod for pod in fresh}
    known = {pod.uid for pod in (*pods.pods, *pods.vanished)}
    kept = [now[p.uid] if p.uid in now and now[p.uid].ended else p for p in pods.pods if p.ended or p.uid in now]
    new = [pod for uid, pod in sorted(now.items()) if uid not in known]
    gone = [pod for pod in pods.pods if not pod.ended and pod.uid not in now]
    return replace(pods, pods=(*kept, *new), vanished=(*pods.vanished, *gone))
