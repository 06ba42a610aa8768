"""Plans before the real scheduler: which pods it binds as planned, once the planned slices are advertised.

In go a planning instance and whether planned pods are nominated; out come figures. The nodes' allocatable takes the
place of hardware: first the slices that are there, then, node by node, those of the plan. Nominations are decided by
the controller's own rule: when the slices of a node are there, just before it offers them, and again while it says so.
"""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchmarks.replay import applied, bound
from controller.demand import is_partition, queue_order
from controller.nominate import due
from controller.planner import plan
from controller.views import NodeView, PlanView, PodView, Snapshot
from kube import apply
from tests.e2e.random_pods import Json
from tests.e2e.real_cluster import MERGE, NODES, call
from tests.e2e.scheduler_rig import Rig, said_of

NAMESPACE = "red"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
QUIET_SECONDS = 15.0
"""Longer than the scheduler's longest back-off: who was not bound until then waits for something else."""
LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of the pods that were planned onto new slices: how many were bound, and how many where they were planned."""

    pending: int
    planned: int
    bound: int
    as_planned: int
    others_bound: int
    """Pods that were not planned and took slices."""


def measure(rig: Rig, before: Snapshot, *, nominate: bool) -> Outcome:
    """What the scheduler makes of one plan; leaves an empty cluster."""
    rig.create_nodes([node_json(node, plan) for node, plan in zip(before.nodes, before.plans, strict=True)])
    rig.create((PODS, pod_json(pod)) for pod in before.pods)
    rig.barrier(volumes=False)
    for pod in sorted(before.pending, key=queue_order):  # one by one, so that they are created in this order
        apply.create(rig.api, PODS, pod_json(pod))
    wait_until_tried(rig, before)
    snapshot = bound(before, where(rig, before))
    result = plan(snapshot)
    promises = {placed.uid: placed.node for placed in result.placed}
    after, _ = applied(snapshot, result)
    try:
        return follow(rig, after, promises, nominate=nominate)
    finally:
        rig.clear()


def follow(rig: Rig, after: Snapshot, promises: Mapping[str, str], *, nominate: bool) -> Outcome:
    """Advertise the plan, and nominate, until nobody is bound any more."""
    plans = {each.name: each for each in after.plans}
    waiting = {pod.uid: pod for pod in after.pending}
    for node in after.nodes:
        if nominate:
            nominate_due(rig, {node.name: plans[node.name]}, waiting, promises)
        allocatable = allocatable_of(node, plans[node.name])
        body = {"status": {"capacity": allocatable, "allocatable": allocatable}}
        assert call(rig.api, "PATCH", f"{NODES}/{node.name}/status", body, MERGE).allowed
    found: dict[str, str] = {}
    quiet_since = time.monotonic()
    while set(promises) - set(found) and time.monotonic() - quiet_since < QUIET_SECONDS:
        now = where(rig, after)
        if now != found:
            found, quiet_since = now, time.monotonic()
        if nominate:
            nominate_due(rig, plans, waiting, promises)
        time.sleep(LOOK_SECONDS)
    return Outcome(
        pending=len(after.pending),
        planned=len(promises),
        bound=len(promises.keys() & found.keys()),
        as_planned=sum(found.get(uid) == node for uid, node in promises.items()),
        others_bound=len(found.keys() - promises.keys()),
    )


def nominate_due(
    rig: Rig,
    plans: Mapping[str, PlanView],
    waiting: Mapping[str, PodView],
    promises: Mapping[str, str],
) -> None:
    """Write the nominations to these nodes that the controller would write now."""
    raw = rig_pods(rig)
    pods = []
    for pod in waiting.values():
        there = raw[pod.name]
        nominated = (there.get("status") or {}).get("nominatedNodeName") or ""
        node = there["spec"].get("nodeName") or ""
        pods.append(replace(pod, node=node, nominated_node=nominated, nomination_ours=bool(nominated)))
    for node in sorted(plans):
        pending = [pod for pod in pods if not pod.node]
        holders = [pod for pod in pods if pod.node == node]
        for pod in due(node, plans[node], pending, holders, promises):
            body = {"status": {"nominatedNodeName": node}}
            answer = call(rig.api, "PATCH", f"{PODS}/{pod.name}/status", body, MERGE)
            assert answer.allowed or rig_pods(rig)[pod.name]["spec"].get("nodeName"), answer.message


def rig_pods(rig: Rig) -> dict[str, Json]:
    """By name."""
    return {pod["metadata"]["name"]: pod for pod in rig.all_of(PODS)}


def where(rig: Rig, snapshot: Snapshot) -> dict[str, str]:
    """Nodes of pending pods that are bound, by the pods' uid in the instance."""
    there = rig_pods(rig)
    nodes = {pod.uid: there[pod.name]["spec"].get("nodeName") or "" for pod in snapshot.pending}
    return {uid: node for uid, node in nodes.items() if node}


def wait_until_tried(rig: Rig, snapshot: Snapshot) -> None:
    """Until the scheduler has said something about every pod."""
    deadline = time.monotonic() + 60
    names = {pod.name for pod in snapshot.pending}
    while any(said_of(pod) is None for name, pod in rig_pods(rig).items() if name in names):
        assert time.monotonic() < deadline, "the scheduler has not tried every pod in a minute"
        time.sleep(LOOK_SECONDS)


# ------------------------------------------------------------------------------------------------ objects


def allocatable_of(node: NodeView, plan_view: PlanView) -> dict[str, str]:
    """As it would be advertised: every resource that any GPU could offer is there, be it zero."""
    slices = Counter(part.resource for gpu in plan_view.gpus for part in gpu.partitions)
    rest = {name: number for name, number in node.allocatable.items() if not is_partition(name)}
    return _quantities({**rest, **slices})


def node_json(node: NodeView, plan_view: PlanView) -> Json:
    amounts = allocatable_of(node, plan_view)
    taints = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in node.taints]
    return {
        "metadata": {"name": node.name, "labels": dict(node.labels)},
        "spec": {"taints": taints},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def pod_json(pod: PodView) -> Json:
    requests = _quantities(dict(pod.requests))
    limits = {name: number for name, number in requests.items() if is_partition(name)}
    spec: Json = {
        "containers": [{"name": "main", "image": "none", "resources": {"requests": requests, "limits": limits}}],
        "nodeSelector": dict(pod.node_selector),
        "tolerations": [{"key": each.key, "operator": each.operator} for each in pod.tolerations],
    }
    if pod.node:
        spec["nodeName"] = pod.node
    return {"metadata": {"name": pod.name}, "spec": spec}


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: f"{number}m" if name == "cpu" else str(number) for name, number in sorted(amounts.items())}
