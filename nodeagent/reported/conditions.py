"""The conditions of a plan, for people and for `kubectl wait`.

In go the outcomes of a pass, out comes the closed set but for AgentAlive, which is the controller's. Ready=True is said
of a confirmed generation only, Ready=False of the one that was read, and all are written in one go, so that
`kubectl wait --for=condition=Ready` never believes an older spec. A condition's time moves only with its status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from crds.v1alpha1.names import Condition, GpuState, Reason
from crds.v1alpha1.status import ConditionStatus
from nodeagent.hardware.driver import Health
from nodeagent.reported.outcome import GpuOutcome, PassResult
from nodeagent.wanted.desired import mig_manager_remedy

MOST_MESSAGE_CHARS = 4096
UNDER_WAY = (GpuState.CHANGING, GpuState.ADVERTISING, GpuState.WAITING_FOR_RELEASE)
OURS = tuple(condition for condition in Condition if condition is not Condition.AGENT_ALIVE)
Said: TypeAlias = tuple[bool, Reason, str]
"""Status, reason and message."""


def conditions(
    found: PassResult, live: Iterable[Mapping[str, Any]], *, generation: int, now: str
) -> list[ConditionStatus]:
    """Sorted by type. `live` are the conditions that the API holds."""
    before = {condition.get("type"): condition for condition in live}
    said: dict[Condition, Said] = {
        Condition.READY: _ready(found),
        Condition.RECONCILING: _reconciling(found),
        Condition.STALLED: _stalled(found),
        Condition.APPLIED: _applied(found),
        Condition.ADVERTISED: _advertised(found),
        Condition.DRIFTED: _drifted(found),
        Condition.OWNERSHIP_CONFLICT: _ownership(found),
        Condition.GPUS_HEALTHY: _health(found),
    }
    written = []
    for kind, (is_so, reason, message) in sorted(said.items()):
        status: Literal["True", "False"] = "True" if is_so else "False"
        known = before.get(kind.value, {})
        unchanged = known.get("status") == status and bool(known.get("lastTransitionTime"))
        written.append(
            ConditionStatus(
                type=kind.value,
                status=status,
                observed_generation=generation,
                last_transition_time=str(known["lastTransitionTime"]) if unchanged else now,
                reason=reason.value,
                message=message[:MOST_MESSAGE_CHARS],
            )
        )
    return written


def _ready(found: PassResult) -> Said:
    if found.problem:
        return False, *found.problem
    unready = (
        found.of_state(GpuState.FAILED) or found.of_state(GpuState.WAITING_FOR_RELEASE) or found.of_state(*UNDER_WAY)
    )
    if unready:
        return False, unready[0].reason, _sentences(unready)
    managed = sum(outcome.managed for outcome in found.outcomes)
    rest = len(found.outcomes) - managed
    message = "1 GPU is as planned" if managed == 1 else f"{managed} GPUs are as planned"
    if rest:
        message += f", {rest} {'is' if rest == 1 else 'are'} not in the plan"
    return True, Reason.CONFIRMED, message


def _reconciling(found: PassResult) -> Said:
    if found.plan.paused:
        return False, Reason.PAUSED, "spec.paused is true"
    return _any(found.of_state(*UNDER_WAY), otherwise=Reason.IDLE)


def _stalled(found: PassResult) -> Said:
    if found.problem:
        return True, *found.problem
    return _any(found.of_state(GpuState.FAILED), otherwise=Reason.IDLE)


def _any(outcomes: list[GpuOutcome], *, otherwise: Reason) -> Said:
    """True where there is such a GPU."""
    return (True, outcomes[0].reason, _sentences(outcomes)) if outcomes else (False, otherwise, "")


def _applied(found: PassResult) -> Said:
    behind = [outcome for outcome in found.outcomes if outcome.managed and not outcome.converged]
    return (False, behind[0].reason, _sentences(behind)) if behind else (True, Reason.AS_PLANNED, "")


def _advertised(found: PassResult) -> Said:
    if not found.advertised:
        return False, Reason.ADVERTISING, found.advertise_message
    loaded = found.seen.readings.loaded
    # The plugin's own troubles, which no GPU or resource feels yet.
    general = [problem.message for problem in loaded.errors if not (problem.gpu or problem.resource)] if loaded else []
    return True, Reason.CONFIRMED, "; ".join(f"device plugin: {message}" for message in general)


def _drifted(found: PassResult) -> Said:
    """Confirmed once for this very item, and different now: somebody else changed the hardware."""
    drifted = [
        outcome
        for outcome in found.outcomes
        if outcome.managed
        and outcome.plan_hash == outcome.item_hash
        and not outcome.converged
        and not found.plan.paused
    ]
    return (True, Reason.DRIFT, _sentences(drifted)) if drifted else (False, Reason.AS_PLANNED, "")


def _ownership(found: PassResult) -> Said:
    if found.seen.rival:
        return True, Reason.FOREIGN_OWNER, found.seen.rival
    foreign = found.confirmation.foreign
    if foreign:
        return (
            True,
            Reason.FOREIGN_OWNER,
            f"another device plugin offers {', '.join(foreign[:4])}: stop it on this node",
        )
    if pod := found.seen.pods.mig_manager:
        return True, Reason.FOREIGN_OWNER, mig_manager_remedy(pod)
    return False, Reason.NO_CONFLICT, ""


def _health(found: PassResult) -> Said:
    gpus = [outcome.gpu for outcome in found.outcomes if outcome.gpu is not None]
    ill = [f"GPU {gpu.index}: {gpu.health_message}" for gpu in gpus if gpu.health is Health.UNHEALTHY]
    return (False, Reason.UNHEALTHY, "; ".join(ill)) if ill else (True, Reason.HEALTHY, "")


def _sentences(outcomes: Iterable[GpuOutcome]) -> str:
    return "; ".join(f"GPU {outcome.index}: {outcome.message or outcome.reason}" for outcome in outcomes)
