"""The conditions of a plan, for people and for `kubectl wait`.

Takes the outcomes of a pass, returns every condition but AgentAlive, which is the controller's. Ready=True names the
confirmed generation only, Ready=False the one that was read, and all are written at once, so that
`kubectl wait --for=condition=Ready` never believes an older spec. Each has a message, also where all is well. A
condition's time moves only with its status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from crds.v1alpha1.names import Condition, GpuState, Reason
from crds.v1alpha1.status import ConditionStatus
from nodeagent.desired.target import mig_manager_remedy
from nodeagent.hardware.driver import Health
from nodeagent.report.outcome import GpuOutcome, PassResult

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
    return True, Reason.CONFIRMED, _matching(found)


def _matching(found: PassResult) -> str:
    managed = sum(outcome.managed for outcome in found.outcomes)
    rest = len(found.outcomes) - managed
    unmanaged = f" ({rest} unmanaged)" if rest else ""
    if not managed:
        return f"No GPU is in the plan{unmanaged}."
    return f"{'1 GPU matches' if managed == 1 else f'{managed} GPUs match'} the plan{unmanaged}."


def _reconciling(found: PassResult) -> Said:
    if found.plan.paused:
        return False, Reason.PAUSED, "Nothing is changed while spec.paused is true."
    return _any(found.of_state(*UNDER_WAY), otherwise="No change is under way.")


def _stalled(found: PassResult) -> Said:
    if found.problem:
        return True, *found.problem
    return _any(found.of_state(GpuState.FAILED), otherwise="Nothing needs a person to act.")


def _any(outcomes: list[GpuOutcome], *, otherwise: str) -> Said:
    """True where there is such a GPU."""
    return (True, outcomes[0].reason, _sentences(outcomes)) if outcomes else (False, Reason.IDLE, otherwise)


def _applied(found: PassResult) -> Said:
    behind = [outcome for outcome in found.outcomes if outcome.managed and not outcome.converged]
    if behind:
        return False, behind[0].reason, _sentences(behind)
    return True, Reason.AS_PLANNED, "The hardware of every GPU in the plan is as planned."


def _advertised(found: PassResult) -> Said:
    if not found.advertised:
        why = found.advertise_message or "The kubelet and the Node do not show every advertised device yet."
        return False, Reason.ADVERTISING, why
    loaded = found.seen.readings.loaded
    # The plugin's own troubles, which no GPU or resource feels yet.
    general = [problem.message for problem in loaded.errors if not (problem.gpu or problem.resource)] if loaded else []
    message = "; ".join(f"device plugin: {message}" for message in general)
    return True, Reason.CONFIRMED, message or "The kubelet and the Node show every advertised device."


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
    if drifted:
        return True, Reason.DRIFT, _sentences(drifted)
    return False, Reason.AS_PLANNED, "No GPU in the plan was changed outside gpuplan."


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
    return False, Reason.NO_CONFLICT, "Nothing else partitions or advertises the GPUs of this node."


def _health(found: PassResult) -> Said:
    gpus = [outcome.gpu for outcome in found.outcomes if outcome.gpu is not None]
    ill = [f"GPU {gpu.index}: {gpu.health_message}" for gpu in gpus if gpu.health is Health.UNHEALTHY]
    if ill:
        return False, Reason.UNHEALTHY, "; ".join(ill)
    return True, Reason.HEALTHY, "No GPU reports a fault."


def _sentences(outcomes: Iterable[GpuOutcome]) -> str:
    """Each message once, with the GPUs that it is about."""
    gpus: dict[str, list[str]] = {}
    for outcome in outcomes:
        gpus.setdefault(outcome.message or str(outcome.reason), []).append(str(outcome.index))
    return "; ".join(
        f"{'GPU' if len(indexes) == 1 else 'GPUs'} {', '.join(indexes)}: {message}" for message, indexes in gpus.items()
    )
