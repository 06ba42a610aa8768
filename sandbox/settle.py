"""Decides whether a run is over, and reports what became of each pod.

Takes pods and plans as the API holds them, and the controller's /decisions document; returns one report per pod and
what is still waited for. Pure: it reads no clock and makes no request.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from controller.model.reasons import UnplacedReason
from kube.quantities import to_int
from partitioning.mps import MIB_PER_GIB
from partitioning.resources import ACK_MEMORY, WholeRequest, classify
from sandbox.kubelet.pods import running_seconds

Raw = Mapping[str, Any]

FINISHED = ("Succeeded", "Failed")
IN_FLIGHT = frozenset(reason.value for reason in UnplacedReason if reason.in_flight)
ROOM_REASONS = frozenset(
    reason.value
    for reason in (
        UnplacedReason.WAITS_FOR_RELEASE,
        UnplacedReason.FRAGMENTED,
        UnplacedReason.NO_CAPACITY,
        UnplacedReason.NO_NODE_RESOURCES,
        UnplacedReason.BLOCKED,
    )
) | {"Unschedulable"}
"""Reasons, and the scheduler's one, that may be over when another pod ends."""
AT_REST = ("WaitingForRelease", "Paused")
"""Reasons of Ready=False that only a person or the end of a pod can change."""
LATE = "AdvertiseTimeout"
"""Reason of a stalled plan whose agent goes on by itself: on a busy machine its device plugin may be late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodReport:
    """What came of one pod; `reason` and `message` say why it does not run."""

    namespace: str
    name: str
    phase: str
    node: str
    reason: str
    message: str

    def as_json(self) -> dict[str, str]:
        """The form that `-o json` prints."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """The state of the whole run; it is over when nothing is waited for."""

    pods: tuple[PodReport, ...]
    waiting: tuple[str, ...]

    @property
    def settled(self) -> bool:
        """Every pod is bound, finished or explained, and every plan is at rest."""
        return not self.waiting


def settlement(
    pods: Iterable[Raw],
    plans: Iterable[Raw],
    decisions: Raw | None,
    *,
    without_agent: Collection[str] = (),
    patience_until: float = 0.0,
) -> Settlement:
    """Judge the run. `decisions` is None while the controller has not finished a pass.

    `without_agent` are nodes where no agent runs, so that their plans are never answered. While a pod lacks room,
    others that end by themselves are waited for, if they do before `patience_until` (epoch seconds).
    """
    at_rest = decisions is not None and decisions["idle"] and not decisions["underWay"]
    decided = {entry["uid"]: entry for entry in (decisions or {}).get("pods", [])}
    reports, waiting = [], []
    pods = sorted(pods, key=lambda pod: (pod["metadata"]["namespace"], pod["metadata"]["name"]))
    ending = next((_title(pod) for pod in pods if _asks_for_gpus(pod) and _ends_at(pod) < patience_until), "")
    for pod in pods:
        report, pending = _pod(pod, decided.get(pod["metadata"]["uid"]))
        reports.append(report)
        if ending and not pending and not report.node and report.reason in ROOM_REASONS:
            pending = f"{ending} ends soon and may leave it room"
        if pending:
            waiting.append(f"pod {report.namespace}/{report.name}: {pending}")
    held = _held(pods)
    finished = {_title(pod) for pod in pods if pod.get("status", {}).get("phase") in FINISHED}
    for plan in plans:
        name = plan["metadata"]["name"]
        if name not in without_agent and (why := _plan(plan, held.get(name, Counter()), finished)):
            waiting.append(f"plan {name}: {why}")
    if not at_rest:
        waiting.append("the controller has work in hand" if decisions else "no pass of the controller has finished")
    return Settlement(pods=tuple(reports), waiting=tuple(waiting))


def _pod(pod: Raw, decision: Raw | None) -> tuple[PodReport, str]:
    """The report, and what the pod still waits for ('' when it is bound, finished or explained)."""
    status, spec = pod.get("status", {}), pod["spec"]
    phase, node = status.get("phase", "Pending"), spec.get("nodeName", "")
    scheduled = _condition(pod, "PodScheduled")
    reason, message, pending = status.get("reason", ""), status.get("message", ""), ""
    if phase in FINISHED or (node and phase == "Running"):
        pass
    elif node:
        pending = "" if reason else f"bound to {node}, not running yet"
    elif decision is None and scheduled.get("status") == "False" and not _asks_for_slices(pod):
        reason, message = scheduled.get("reason", ""), scheduled.get("message", "")
    elif decision is not None and decision["outcome"] == "unplaced":
        reason, message = decision["reason"], decision["message"]
        if reason in IN_FLIGHT:
            pending = message
    else:
        pending = f"expected on {decision['node']}" if decision else "not looked at yet"
    report = PodReport(
        namespace=pod["metadata"]["namespace"],
        name=pod["metadata"]["name"],
        phase=phase,
        node=node,
        reason=reason,
        message=message,
    )
    return report, pending


def _title(pod: Raw) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _ends_at(pod: Raw) -> float:
    """When a running pod ends by itself (epoch seconds); infinite if it does not, or does not run."""
    status = pod.get("status", {})
    if status.get("phase") != "Running" or not status.get("startTime"):
        return math.inf
    seconds = [running_seconds(c.get("command") or (), c.get("args") or ()) for c in pod["spec"]["containers"]]
    return datetime.fromisoformat(status["startTime"]).timestamp() + max(math.inf if s is None else s for s in seconds)


def _asks_for_gpus(pod: Raw) -> bool:
    return bool(slices_asked(pod["spec"]["containers"]))


def _asks_for_slices(pod: Raw) -> bool:
    """Whether the controller owes the pod a decision; whole GPUs and all else are the scheduler's to decide."""
    asked = slices_asked([*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])])
    return any(not isinstance(classify(resource), WholeRequest) for resource in asked)


def slices_asked(containers: Iterable[Raw]) -> Counter[str]:
    """What containers ask of GPUs, by resource."""
    found: Counter[str] = Counter()
    for container in containers:
        for resource, amount in (container.get("resources", {}).get("limits") or {}).items():
            if classify(resource) is not None:
                found[resource] += to_int(amount)
    return found


def _held(pods: Iterable[Raw]) -> dict[str, Counter[str]]:
    """What running pods hold on each node, by resource."""
    held: dict[str, Counter[str]] = {}
    for pod in pods:
        if pod["spec"].get("nodeName") and pod.get("status", {}).get("phase") == "Running":
            held.setdefault(pod["spec"]["nodeName"], Counter()).update(slices_asked(pod["spec"]["containers"]))
    return held


def _used(parts: Iterable[Raw]) -> Counter[str]:
    """By resource, as pods request it: a partition of ACK's resource is as many units as it has GiB."""
    found: Counter[str] = Counter()
    for part in parts:
        if part["state"] == "Used":
            found[part["resource"]] += part["memoryMiB"] // MIB_PER_GIB if part["resource"] == ACK_MEMORY else 1
    return found


def _plan(plan: Raw, held: Counter[str], finished: Collection[str]) -> str:
    """Why a plan is not at rest; '' when it is."""
    ready, stalled = _condition(plan, "Ready"), _condition(plan, "Stalled")
    if _condition(plan, "AgentAlive").get("reason") == "NodeNotFound":
        return ""
    if ready.get("observedGeneration") != plan["metadata"]["generation"]:
        return "the agent has not answered this generation"
    parts = [part for gpu in plan["status"].get("gpus", []) for part in gpu.get("partitions", [])]
    if any(part["state"] == "Unknown" for part in parts):
        return "it is not known yet which slices are in use"
    if any(part["state"] == "Pending" for part in parts):
        return "not every slice is schedulable yet"
    if held - _used(parts):
        return "it does not show yet what running pods hold"
    if any(part["state"] == "Used" and part.get("pod") in finished for part in parts):
        return "it still shows what a finished pod held"
    reason = str(ready.get("reason", "not ready"))
    stalls = stalled.get("status") == "True" and reason != LATE
    return "" if ready.get("status") == "True" or stalls or reason in AT_REST else reason


def _condition(holder: Raw, kind: str) -> Raw:
    conditions = holder.get("status", {}).get("conditions", [])
    return next((condition for condition in conditions if condition["type"] == kind), {})
