"""Plans before the real scheduler: which pods it binds as planned, once the planned slices are advertised.

Takes a planning instance and the manner in which its plan is carried out; returns figures. Allocatable of the nodes
takes the place of hardware: first the slices that are there, then, node by node, those of the plan. Nominations follow
the controller's own rule: when the slices of a node are there, just before it advertises them, and again while it shows
them.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace

from benchmarks.replay import applied, bound
from controller.actions.nominations import due
from controller.model.demand import is_partition, queue_order
from controller.model.snapshot import Snapshot
from controller.model.views import NodeView, PlanView, PodView
from controller.planning import plan
from kube import apply
from tests.e2e.random_pods import Json
from tests.e2e.real_cluster import MERGE, NODES, call
from tests.e2e.scheduler_rig import SchedulerRig, verdict_of
from tests.waiting import eventually

NAMESPACE = "red"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
QUIET_SECONDS = 15.0
"""Longer than the scheduler's longest back-off: a pod that was not bound until then waits for something else."""
LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How a plan comes true. `apart`: a node advertises its slices when the pods of the one before are bound."""

    name: str
    nominate: bool
    apart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of the pods that were planned onto new slices: how many were bound, and how many where they were planned."""

    pending: int
    planned: int
    bound: int
    as_planned: int
    others_bound: int
    """Pods that were not planned and took slices."""
    only_exchanged: bool
    """On every node the slices are taken that were planned to be: pods that are elsewhere exchanged places."""


def measure(rig: SchedulerRig, before: Snapshot, manner: Manner) -> Outcome:
    """What the scheduler makes of one plan; leaves an empty cluster."""
    rig.create_nodes([node_json(node, plan) for node, plan in zip(before.nodes, before.plans, strict=True)])
    rig.create((PODS, pod_json(pod)) for pod in before.pods)
    rig.barrier(volumes=False)
    for pod in sorted(before.pending, key=queue_order):  # one by one, so that they are created in this order
        apply.create(rig.api, PODS, pod_json(pod))
    wait_until_tried(rig, before)
    snapshot = bound(before, where(rig, before))
    result = plan(snapshot)
    reservations = {placed.uid: placed.node for placed in result.placed}
    after, _ = applied(snapshot, result)
    try:
        return follow(rig, after, reservations, manner)
    finally:
        rig.clear()


def follow(rig: SchedulerRig, after: Snapshot, reservations: Mapping[str, str], manner: Manner) -> Outcome:
    """Advertise the plan, and nominate, until no pod is bound any more."""
    plans = {each.name: each for each in after.plans}
    waiting = {pod.uid: pod for pod in after.pending}
    offered: dict[str, PlanView] = {}

    def look() -> dict[str, str]:
        if manner.nominate:
            nominate_due(rig, offered, waiting, reservations)
        return where(rig, after)

    for node in after.nodes:
        offered[node.name] = plans[node.name]
        look()
        allocatable = allocatable_of(node, plans[node.name])
        body = {"status": {"capacity": allocatable, "allocatable": allocatable}}
        assert call(rig.api, "PATCH", f"{NODES}/{node.name}/status", body, MERGE).allowed
        if manner.apart:
            watch(look, {uid for uid, there in reservations.items() if there == node.name})
    found = watch(look, set(reservations))
    return Outcome(
        pending=len(after.pending),
        planned=len(reservations),
        bound=len(reservations.keys() & found.keys()),
        as_planned=sum(found.get(uid) == node for uid, node in reservations.items()),
        others_bound=len(found.keys() - reservations.keys()),
        only_exchanged=taken(waiting, found) == taken(waiting, reservations),
    )


def watch(look: Callable[[], dict[str, str]], wanted: Set[str]) -> dict[str, str]:
    """Which pod is bound where, once all of these are or nothing has happened for a while."""
    found = look()
    quiet_since = time.monotonic()
    while wanted - found.keys() and time.monotonic() - quiet_since < QUIET_SECONDS:
        time.sleep(LOOK_SECONDS)
        now = look()
        if now != found:
            found, quiet_since = now, time.monotonic()
    return found


def taken(pods: Mapping[str, PodView], nodes: Mapping[str, str]) -> Counter[tuple[str, str]]:
    """Slices per node and resource; `nodes` by the pods' uid."""
    counted: Counter[tuple[str, str]] = Counter()
    for uid, node in nodes.items():
        counted.update({(node, resource): amount for resource, amount in pods[uid].gpu})
    return counted


def nominate_due(
    rig: SchedulerRig,
    plans: Mapping[str, PlanView],
    waiting: Mapping[str, PodView],
    reservations: Mapping[str, str],
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
        for pod in due(node, plans[node], pending, holders, reservations):
            body = {"status": {"nominatedNodeName": node}}
            answer = call(rig.api, "PATCH", f"{PODS}/{pod.name}/status", body, MERGE)
            assert answer.allowed or rig_pods(rig)[pod.name]["spec"].get("nodeName"), answer.message


def rig_pods(rig: SchedulerRig) -> dict[str, Json]:
    """By name."""
    return {pod["metadata"]["name"]: pod for pod in rig.all_of(PODS)}


def where(rig: SchedulerRig, snapshot: Snapshot) -> dict[str, str]:
    """Nodes of pending pods that are bound, by the pods' uid in the instance."""
    there = rig_pods(rig)
    nodes = {pod.uid: there[pod.name]["spec"].get("nodeName") or "" for pod in snapshot.pending}
    return {uid: node for uid, node in nodes.items() if node}


def wait_until_tried(rig: SchedulerRig, snapshot: Snapshot) -> None:
    """Wait until the scheduler has tried every pod."""
    names = {pod.name for pod in snapshot.pending}

    def untried() -> list[str]:
        return [name for name, pod in rig_pods(rig).items() if name in names and verdict_of(pod) is None]

    eventually(lambda: not untried(), "the scheduler to try every pod", seen=untried)


def allocatable_of(node: NodeView, plan_view: PlanView) -> dict[str, str]:
    """As it would be advertised: every resource that any GPU could have is there, be it zero."""
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
