"""Builds the conditions of a plan, for people and for `kubectl wait`.

Takes the result of a pass, returns every condition but AgentAlive and ServedByDRA, which are the controller's.
Ready=True names the confirmed generation only, Ready=False the one that was read, and all are written at once, so that
`kubectl wait --for=condition=Ready` never believes an older spec. Ready, Reconciling, Stalled and Applied are always
there, the others only while they say what a person would not expect (docs/conditions.md). A condition's time moves
only with its status.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

from crds.v1alpha1.names import OF_CONTROLLER, Condition, GpuState, Reason
from crds.v1alpha1.status import ConditionStatus
from nodeagent.desired.target import mig_manager_remedy
from nodeagent.outcome.pass_result import GpuOutcome, PassResult, fault
from nodeagent.report.driver_release import driver_released
from nodeagent.report.operator_labels import missing
from partitioning.resources import ACK_MEMORY

MOST_MESSAGE_CHARS = 4096
UNDER_WAY = (GpuState.CHANGING, GpuState.ADVERTISING, GpuState.WAITING_FOR_RELEASE)
OURS = tuple(condition for condition in Condition if condition not in OF_CONTROLLER)
ConditionValue: TypeAlias = tuple[bool, Reason, str]
"""Status, reason and message."""


def conditions(
    result: PassResult, live: Iterable[Mapping[str, Any]], *, generation: int, now: str
) -> list[ConditionStatus]:
    """Sorted by type. `live` are the conditions that the API holds."""
    before = {condition.get("type"): condition for condition in live}
    values: dict[Condition, ConditionValue | None] = {
        Condition.READY: _ready(result),
        Condition.RECONCILING: _reconciling(result),
        Condition.STALLED: _stalled(result),
        Condition.APPLIED: _applied(result),
        Condition.ADVERTISED: _advertised(result),
        Condition.DRIFTED: _drifted(result),
        Condition.OWNERSHIP_CONFLICT: _ownership(result),
        Condition.GPUS_HEALTHY: _health(result),
        Condition.MEMORY_ONLY: _memory_only(result),
        Condition.HOST_ACCESS: _host_access(result),
        Condition.ALLOCATABLE_WRITTEN: _allocatable_written(result),
        Condition.OPERATOR_LABELS: _operator_labels(result),
        Condition.DRIVER_RELEASED: driver_released(result.work),
        Condition.HANDED_BACK: _handed_back(result),
    }
    written = []
    for kind, value in sorted(values.items()):
        if value is None:
            continue
        is_so, reason, message = value
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


def _ready(result: PassResult) -> ConditionValue:
    if result.problem:
        return False, *result.problem
    if result.held_twice:
        return False, Reason.HELD_TWICE, result.held_twice
    if result.release.disabled:
        return False, Reason.NODE_DISABLED, result.release.message
    if result.observation.driver_closed:
        return _driver(result)
    first = ((GpuState.FAILED,), (GpuState.WAITING_FOR_RELEASE,), UNDER_WAY)
    unready = next(filter(None, (result.of_state(*states) for states in first)), None)
    if unready:
        return False, unready[0].reason, _sentences(unready)
    node = result.observation.readings.node
    if node is not None and node.enablement_problem:
        return True, Reason.NOT_PLANNED, f"{_matching(result)} Nothing is planned here: {node.enablement_problem}."
    return True, Reason.CONFIRMED, _matching(result)


def _matching(result: PassResult) -> str:
    managed = sum(outcome.managed for outcome in result.outcomes)
    rest = len(result.outcomes) - managed
    unmanaged = f" ({rest} unmanaged)" if rest else ""
    if not managed:
        return f"No GPU is in the plan{unmanaged}."
    return f"{'1 GPU matches' if managed == 1 else f'{managed} GPUs match'} the plan{unmanaged}."


def _reconciling(result: PassResult) -> ConditionValue:
    if result.observation.driver_closed:
        return True, result.observation.closed_reason, str(result.observation.driver_problem)
    if result.release.disabled:
        return not result.release.done, result.release.reason, result.release.message
    if result.work.desired.paused:
        return False, Reason.PAUSED, "Nothing is changed while spec.paused is true."
    return _any(result.of_state(*UNDER_WAY), otherwise="No change is under way.")


def _stalled(result: PassResult) -> ConditionValue:
    if result.problem:
        return True, *result.problem
    if result.held_twice:
        return True, Reason.HELD_TWICE, result.held_twice
    if result.work.advertised.overdue and (unwritten := result.work.advertised.unwritten):
        return True, Reason.ADVERTISE_TIMEOUT, unwritten
    return _any(result.of_state(GpuState.FAILED), otherwise="Nothing needs a person to act.")


def _any(outcomes: list[GpuOutcome], *, otherwise: str) -> ConditionValue:
    """True where there is such a GPU."""
    return (True, outcomes[0].reason, _sentences(outcomes)) if outcomes else (False, Reason.IDLE, otherwise)


def _applied(result: PassResult) -> ConditionValue:
    if result.release.disabled:
        return False, Reason.NODE_DISABLED, "The node is not enabled: its plan is not carried out."
    behind = [outcome for outcome in result.outcomes if outcome.managed and not outcome.converged]
    if behind:
        return False, behind[0].reason, _sentences(behind)
    return True, Reason.AS_PLANNED, "The hardware of every GPU in the plan is as planned."


def _handed_back(result: PassResult) -> ConditionValue | None:
    found = result.release
    return (found.done, found.reason, found.message) if found.disabled else None


def _advertised(result: PassResult) -> ConditionValue | None:
    delivery = result.work.advertised.delivery
    if delivery.missing:
        return False, Reason.CDI_UNAVAILABLE, delivery.reason
    if not result.advertised:
        why = result.work.advertised.message or "The kubelet and the Node do not show every advertised device yet."
        return False, Reason.ADVERTISING, "; ".join(filter(None, (why, result.work.advertised.tainted)))
    loaded = result.observation.readings.loaded
    # The plugin's own troubles, which no GPU or resource feels yet.
    general = [problem.message for problem in loaded.errors if not (problem.gpu or problem.resource)] if loaded else []
    message = "; ".join([*(f"device plugin: {message}" for message in general), *filter(None, [delivery.note])])
    return (True, Reason.CONFIRMED, message) if message else None


def _drifted(result: PassResult) -> ConditionValue | None:
    """Confirmed once for this very item, and different now: something else changed the hardware."""
    drifted = [
        outcome
        for outcome in result.outcomes
        if outcome.managed
        and outcome.plan_hash == outcome.item_hash
        and outcome.gpu is not None
        and result.work.changes[outcome.index].hardware_differs
        and not (result.work.desired.paused or result.work.desired.disabled)
        # What cannot be read was not observed to differ.
        and not outcome.gpu.problem
    ]
    return (True, Reason.DRIFT, _sentences(drifted)) if drifted else None


def _ownership(result: PassResult) -> ConditionValue | None:
    if result.work.advertised.rival:
        return True, Reason.FOREIGN_OWNER, result.work.advertised.rival
    if pod := result.observation.pods.mig_manager:
        return True, Reason.FOREIGN_OWNER, mig_manager_remedy(pod)
    return None


def _health(result: PassResult) -> ConditionValue | None:
    if result.observation.driver_problem is not None:
        return _driver(result)
    faults = [(outcome.index, fault(outcome.gpu)) for outcome in result.outcomes if outcome.gpu is not None]
    ill = [f"GPU {index}: {why}" for index, why in faults if why]
    return (False, Reason.UNHEALTHY, "; ".join(ill)) if ill else None


def _operator_labels(result: PassResult) -> ConditionValue | None:
    message = missing(result.observation.readings.node, disabled=result.observation.disabled)
    return (False, Reason.OPERATOR_LABELS_MISSING, message) if message else None


def _memory_only(result: PassResult) -> ConditionValue | None:
    """What ACK's way of sharing does not give, and what its users cannot see from a Node."""
    uuids = {device.gpu for device in result.work.advertised.config.advertised() if device.resource == ACK_MEMORY}
    shared = [str(outcome.index) for outcome in result.outcomes if outcome.gpu and outcome.gpu.uuid in uuids]
    if not shared:
        return None
    gpus = f"{'GPU' if len(shared) == 1 else 'GPUs'} {', '.join(shared)}"
    message = f"{gpus}: memory is limited per container, compute is not."
    if len(shared) > 1:
        message += (
            f" kube-scheduler sees the sum of {len(shared)} GPUs, and a container gets its memory from one: a pod that "
            "no single GPU has room for is refused by the kubelet (UnexpectedAdmissionError)."
        )
    return True, Reason.SHARED_BY_MEMORY, message


def _host_access(result: PassResult) -> ConditionValue | None:
    """What the agent's pod must see of its node; without it the agent would have to guess."""
    if result.observation.driver_problem is not None:
        return _driver(result)
    found = (result.observation.witnessed.hidden_processes, result.work.advertised.delivery.unseen)
    hidden = "; ".join(filter(None, found))
    return (False, Reason.HOST_NOT_VISIBLE, hidden) if hidden else None


def _driver(result: PassResult) -> ConditionValue:
    """What cannot be known without the driver."""
    reason = result.observation.closed_reason if result.observation.driver_closed else Reason.DRIVER_ERROR
    return False, reason, str(result.observation.driver_problem)


def _allocatable_written(result: PassResult) -> ConditionValue | None:
    if result.work.desired.by_nvidia:
        return False, Reason.IDLE, "NVIDIA's device plugin serves this node, and the kubelet alone writes its amounts."
    found = result.work.advertised.counts_right
    return None if found.granted else (False, found.reason, found.message)


def _sentences(outcomes: Iterable[GpuOutcome]) -> str:
    """Each message once, with the GPUs that it is about."""
    gpus: dict[str, list[str]] = {}
    for outcome in outcomes:
        gpus.setdefault(outcome.message or str(outcome.reason), []).append(str(outcome.index))
    return "; ".join(
        f"{'GPU' if len(indexes) == 1 else 'GPUs'} {', '.join(indexes)}: {message}" for message, indexes in gpus.items()
    )
