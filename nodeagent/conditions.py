"""The conditions of a plan, for people and for `kubectl wait`.

In go the outcomes of a pass, out comes the closed set but for AgentAlive, which is the controller's. Ready=True is said
of a confirmed generation only, Ready=False of the one that was read, and all are written in one go, so that
`kubectl wait --for=condition=Ready` never believes an older spec. A condition's time moves only with its status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from crds.v1alpha1.names import Condition, GpuState, Reason
from crds.v1alpha1.status import ConditionStatus
from nodeagent.driver import Health
from nodeagent.outcome import GpuOutcome

MOST_MESSAGE_CHARS = 4096
UNDER_WAY = (GpuState.CHANGING, GpuState.ADVERTISING, GpuState.WAITING_FOR_RELEASE)
OURS = tuple(condition for condition in Condition if condition is not Condition.AGENT_ALIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionInput:
    """What the conditions are made from."""

    generation: int
    paused: bool
    outcomes: tuple[GpuOutcome, ...]
    advertised: bool
    """Everything that is offered was seen by kubelet and Node."""
    advertise_message: str = ""
    problem: str = ""
    """The plan cannot be read, or the driver does not answer: it stands before any GPU's own."""
    problem_reason: Reason = Reason.DRIVER_ERROR
    foreign: tuple[str, ...] = ()
    """Device ids under our resource names that another plugin offers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    type: Condition
    status: bool
    reason: Reason
    message: str = ""


def conditions(found: ConditionInput, live: Iterable[Mapping[str, Any]], now: str) -> list[ConditionStatus]:
    """Sorted by type. `live` are the conditions that the API holds."""
    before = {condition.get("type"): condition for condition in live}
    said = (_ready, _reconciling, _stalled, _applied, _advertised, _drifted, _ownership, _health)
    return sorted(
        (_written(say(found), found.generation, before, now) for say in said), key=lambda condition: condition.type
    )


def _written(said: _Said, generation: int, before: Mapping[Any, Mapping[str, Any]], now: str) -> ConditionStatus:
    status: Literal["True", "False"] = "True" if said.status else "False"
    known = before.get(said.type.value, {})
    unchanged = known.get("status") == status and bool(known.get("lastTransitionTime"))
    return ConditionStatus(
        type=said.type.value,
        status=status,
        observed_generation=generation,
        last_transition_time=str(known["lastTransitionTime"]) if unchanged else now,
        reason=said.reason.value,
        message=said.message[:MOST_MESSAGE_CHARS],
    )


def _ready(found: ConditionInput) -> _Said:
    if found.problem:
        return _Said(type=Condition.READY, status=False, reason=found.problem_reason, message=found.problem)
    unready = _of_state(found, GpuState.FAILED) or _of_state(found, GpuState.WAITING_FOR_RELEASE)
    unready = unready or _of_state(found, *UNDER_WAY)
    if unready:
        return _Said(type=Condition.READY, status=False, reason=unready[0].reason, message=_sentences(unready))
    managed = sum(outcome.managed for outcome in found.outcomes)
    rest = len(found.outcomes) - managed
    message = f"{managed} GPUs are as planned" + (f", {rest} are not in the plan" if rest else "")
    return _Said(type=Condition.READY, status=True, reason=Reason.CONFIRMED, message=message)


def _reconciling(found: ConditionInput) -> _Said:
    if found.paused:
        return _Said(type=Condition.RECONCILING, status=False, reason=Reason.PAUSED, message="spec.paused is true")
    busy = _of_state(found, *UNDER_WAY)
    if busy:
        return _Said(type=Condition.RECONCILING, status=True, reason=busy[0].reason, message=_sentences(busy))
    return _Said(type=Condition.RECONCILING, status=False, reason=Reason.IDLE)


def _stalled(found: ConditionInput) -> _Said:
    if found.problem:
        return _Said(type=Condition.STALLED, status=True, reason=found.problem_reason, message=found.problem)
    failed = _of_state(found, GpuState.FAILED)
    if failed:
        return _Said(type=Condition.STALLED, status=True, reason=failed[0].reason, message=_sentences(failed))
    return _Said(type=Condition.STALLED, status=False, reason=Reason.IDLE)


def _applied(found: ConditionInput) -> _Said:
    behind = [outcome for outcome in found.outcomes if outcome.managed and not outcome.converged]
    if behind:
        return _Said(type=Condition.APPLIED, status=False, reason=behind[0].reason, message=_sentences(behind))
    return _Said(type=Condition.APPLIED, status=True, reason=Reason.AS_PLANNED)


def _advertised(found: ConditionInput) -> _Said:
    if found.advertised:
        return _Said(type=Condition.ADVERTISED, status=True, reason=Reason.CONFIRMED)
    message = found.advertise_message
    return _Said(type=Condition.ADVERTISED, status=False, reason=Reason.ADVERTISING, message=message)


def _drifted(found: ConditionInput) -> _Said:
    """Confirmed once for this very item, and different now: somebody else changed the hardware."""
    drifted = [
        outcome
        for outcome in found.outcomes
        if outcome.managed and outcome.plan_hash == outcome.item_hash and not outcome.converged and not found.paused
    ]
    if drifted:
        return _Said(type=Condition.DRIFTED, status=True, reason=Reason.DRIFT, message=_sentences(drifted))
    return _Said(type=Condition.DRIFTED, status=False, reason=Reason.AS_PLANNED)


def _ownership(found: ConditionInput) -> _Said:
    if found.foreign:
        message = f"another device plugin offers {', '.join(found.foreign[:4])}: stop it on this node"
        return _Said(type=Condition.OWNERSHIP_CONFLICT, status=True, reason=Reason.FOREIGN_OWNER, message=message)
    return _Said(type=Condition.OWNERSHIP_CONFLICT, status=False, reason=Reason.NO_CONFLICT)


def _health(found: ConditionInput) -> _Said:
    ill = [outcome for outcome in found.outcomes if outcome.gpu is not None and outcome.gpu.health is Health.UNHEALTHY]
    if ill:
        message = "; ".join(f"GPU {o.index}: {o.gpu.health_message}" for o in ill if o.gpu)
        return _Said(type=Condition.GPUS_HEALTHY, status=False, reason=Reason.UNHEALTHY, message=message)
    return _Said(type=Condition.GPUS_HEALTHY, status=True, reason=Reason.HEALTHY)


def _of_state(found: ConditionInput, *states: GpuState) -> list[GpuOutcome]:
    return [outcome for outcome in found.outcomes if outcome.managed and outcome.state in states]


def _sentences(outcomes: Iterable[GpuOutcome]) -> str:
    return "; ".join(f"GPU {outcome.index}: {outcome.message or outcome.reason}" for outcome in outcomes)
