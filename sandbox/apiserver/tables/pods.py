"""Defines the columns of pods. The word under STATUS follows from phase, containers and deletion.

Takes a pod and returns its cells. Must never fail on a pod that lacks fields.
"""

from dataclasses import dataclass
from typing import Any, Final

from sandbox.apiserver.objects import Obj, dig, mappings, meta
from sandbox.apiserver.tables.columns import AGE, NAME, Column

_NONE: Final = "<none>"


@dataclass(slots=True, kw_only=True)
class _Summary:
    """What the containers add up to."""

    reason: str
    ready: int = 0
    total: int = 0
    restarts: int = 0


def _summary(pod: Obj) -> _Summary:
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    summary = _Summary(reason=status.get("reason") or status.get("phase") or "")
    for condition in mappings(status.get("conditions")):
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            summary.reason = "SchedulingGated"
    sidecars = {c.get("name") for c in mappings(spec.get("initContainers")) if c.get("restartPolicy") == "Always"}
    summary.total = len(spec.get("containers") or []) + len(sidecars)
    initializing = _initialization(spec, status, sidecars, summary)
    if not initializing or _condition(status, "Initialized"):
        _containers(status, summary)
    if meta(pod).get("deletionTimestamp") and status.get("phase") not in ("Succeeded", "Failed"):
        summary.reason = "Terminating"
    return summary


def _initialization(spec: Obj, status: Obj, sidecars: set[Any], summary: _Summary) -> bool:
    """Whether init containers still run; then the reason shows how far they are."""
    for index, container in enumerate(mappings(status.get("initContainerStatuses"))):
        summary.restarts += container.get("restartCount", 0)
        state = container.get("state") or {}
        ended, waiting = state.get("terminated"), dig(state, "waiting", "reason")
        if ended is not None and ended.get("exitCode", 0) == 0:
            continue
        if container.get("name") in sidecars and container.get("started"):
            summary.ready += bool(container.get("ready"))
            continue
        if ended is not None:
            summary.reason = f"Init:{_ended(ended)}"
        elif waiting and waiting != "PodInitializing":
            summary.reason = f"Init:{waiting}"
        else:
            summary.reason = f"Init:{index}/{len(spec.get('initContainers') or [])}"
        return True
    return False


def _containers(status: Obj, summary: _Summary) -> None:
    running = False
    for container in reversed(list(mappings(status.get("containerStatuses")))):
        summary.restarts += container.get("restartCount", 0)
        state = container.get("state") or {}
        waiting, ended = dig(state, "waiting", "reason"), state.get("terminated")
        if waiting:
            summary.reason = waiting
        elif ended is not None:
            summary.reason = _ended(ended)
        elif container.get("ready") and state.get("running") is not None:
            running = True
            summary.ready += 1
    if summary.reason == "Completed" and running:
        summary.reason = "Running" if _condition(status, "Ready") else "NotReady"


def _ended(terminated: Obj) -> str:
    return str(terminated.get("reason") or f"ExitCode:{terminated.get('exitCode', 0)}")


def _condition(status: Obj, type_: str) -> bool:
    return any(c.get("type") == type_ and c.get("status") == "True" for c in mappings(status.get("conditions")))


def _ready(pod: Obj) -> str:
    summary = _summary(pod)
    return f"{summary.ready}/{summary.total}"


COLUMNS: Final = (
    NAME,
    Column(name="Ready", cell=_ready),
    Column(name="Status", cell=lambda pod: _summary(pod).reason),
    Column(name="Restarts", cell=lambda pod: str(_summary(pod).restarts)),
    AGE,
    Column(name="IP", priority=1, cell=lambda pod: dig(pod, "status", "podIP") or _NONE),
    Column(name="Node", priority=1, cell=lambda pod: dig(pod, "spec", "nodeName") or _NONE),
    Column(name="Nominated Node", priority=1, cell=lambda pod: dig(pod, "status", "nominatedNodeName") or _NONE),
    Column(name="Readiness Gates", priority=1, cell=lambda _pod: _NONE),
)
