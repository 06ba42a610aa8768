"""The words for causes: what happened, and one remedy with the person who can do it.

Takes causes, returns one answer: the cause that is nearest to serving the pod. The other causes are details. Never
decides what a cause is.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller.explanation.causes import Cause
from controller.explanation.phrases import Answer, gpus_on, listed, sentence
from controller.model.reasons import UnplacedReason
from controller.planner.inventory.stock import Ineligible
from crds.v1alpha1.names import CLOSED, LABEL_DRIVER, LABEL_MPS_REPLICAS, LABEL_PARTITIONING, Partitioning


@dataclass(frozen=True, slots=True)
class _Row:
    """The words for one cause."""

    reason: UnplacedReason
    what: str
    remedy: str


_WAIT_FOR_RELEASE = "The pod starts when these are released; or add a GPU node."
_BLOCKED, _AWAITING, _RELEASE = (
    UnplacedReason.BLOCKED,
    UnplacedReason.AWAITING_AGENT,
    UnplacedReason.WAITS_FOR_RELEASE,
)
_ROWS = {
    # The nearest to serving first.
    Ineligible.CHANGING: _Row(
        UnplacedReason.CHANGE_UNDER_WAY,
        "{gpus} {are} being repartitioned.",
        "This pod will be reconsidered when that is done.",
    ),
    Ineligible.NOT_REPORTED: _Row(
        _AWAITING,
        "The node agent on {nodes} has not reported its GPUs yet.",
        "If this lasts, ask an administrator to check the agent's pod.",
    ),
    Ineligible.NO_PLAN: _Row(
        _AWAITING, "{nodes} {have} no plan yet.", "If this lasts, ask an administrator to check the node agent's pod."
    ),
    Ineligible.USE_UNKNOWN: _Row(
        _AWAITING,
        "{gpus} may be in use as a whole GPU; the node agent is checking.",
        "If this lasts, ask an administrator to check status.gpus of {plans}.",
    ),
    Ineligible.AGENT_SILENT: _Row(
        _AWAITING, "The node agent on {nodes} has stopped responding.", "Ask an administrator to check the agent's pod."
    ),
    Ineligible.BACKING_OFF: _Row(
        _BLOCKED, "Changes of {gpus} failed and are retried automatically.", "The errors are in status.gpus of {plans}."
    ),
    Ineligible.DRAINED: _Row(
        UnplacedReason.NO_CAPACITY, "{gpus} {are} drained for a pod that has waited long.", "Wait, or add a GPU node."
    ),
    Ineligible.HELD_WHOLE: _Row(_RELEASE, "{gpus} {are} in use as a whole GPU.", _WAIT_FOR_RELEASE),
    Ineligible.WAITING: _Row(
        _RELEASE, "{gpus} {have} partitions in use that the plan does not keep.", _WAIT_FOR_RELEASE
    ),
    Ineligible.FOREIGN: _Row(_RELEASE, "{gpus} {have} partitions of the other kind in use.", _WAIT_FOR_RELEASE),
    Ineligible.HELD_OFF: _Row(
        _BLOCKED,
        f"An administrator works on the driver of {{nodes}} (label {LABEL_DRIVER}={CLOSED}).",
        "Wait, or ask the administrator whether that label was forgotten.",
    ),
    Ineligible.PAUSED: _Row(
        _BLOCKED, "Changes to {nodes} are paused ({plans}, spec.paused).", "Ask the owner of the plan to resume it."
    ),
    Ineligible.MANUAL: _Row(
        _BLOCKED,
        "{nodes} {have} a plan in mode Manual, which gpuplan does not change.",
        "Add the partition to {plans}, or ask its owner.",
    ),
    Ineligible.PINNED: _Row(
        _BLOCKED, "{gpus} {are} fixed in spec.gpus of {plans}.", "Add the partition there, or ask the plan's owner."
    ),
    Ineligible.SHARED_EQUALLY: _Row(
        _BLOCKED,
        "{gpus} {are} shared in equal parts, for pods that request {given}.",
        f"Request that, or ask an administrator to label the node {LABEL_MPS_REPLICAS}=0.",
    ),
    Ineligible.WRITE_REFUSED: _Row(
        _BLOCKED, "The plan of {nodes} could not be written: {given}.", "Ask an administrator to allow the write."
    ),
    Ineligible.PLAN_FAILED: _Row(
        _BLOCKED, "Planning {nodes} failed.", "Ask an administrator to check the Events of {plans}."
    ),
    Ineligible.BY_NVIDIA: _Row(
        _BLOCKED,
        "{gpus} {are} served by NVIDIA's device plugin, which shares all GPUs of a node alike.",
        "Ask an administrator for a node with devicePlugin.backend gpuplan.",
    ),
    Ineligible.NODE_NOT_READY: _Row(
        _BLOCKED, "{nodes} {are} not ready, or deleted.", "Ask an administrator to check the conditions of the node."
    ),
    Ineligible.MIG_MODE_DISABLED: _Row(
        UnplacedReason.MIG_MODE_DISABLED,
        "MIG mode is off on {gpus}.",
        "Ask an administrator to run `nvidia-smi -i {indexes} -mig 1` there, as docs/mig.md says.",
    ),
    Ineligible.MIG_MODE_ENABLED: _Row(
        _BLOCKED,
        "MIG mode is on for {gpus}, and MPS slices and whole GPUs need it off.",
        "Ask an administrator to run `nvidia-smi -i {indexes} -mig 0` there, as docs/mig.md says.",
    ),
    Ineligible.FAILED: _Row(_BLOCKED, "{gpus} {have} failed.", "Ask an administrator to check status.gpus of {plans}."),
    Ineligible.NO_PLACEMENT: _Row(
        _BLOCKED,
        "{gpus} {have} partitions without a placement, as a lost GPU does.",
        "Ask an administrator to check status.gpus of {plans}.",
    ),
    Ineligible.NOT_ENABLED: _Row(
        _BLOCKED,
        "{nodes} {are} not enabled for gpuplan.",
        f"Ask an administrator to label the node {LABEL_PARTITIONING}=mig, mps or auto.",
    ),
    Ineligible.UNKNOWN_MODEL: _Row(
        _BLOCKED,
        "{gpus} {are} of an unknown model.",
        "Ask an administrator to check status.models of {plans}, and in the controller's log whether it was believed.",
    ),
    Ineligible.NO_MIG_PLACEMENTS: _Row(
        _BLOCKED,
        "The MIG placements of {gpus} are not known: the driver names none.",
        "Request an MPS slice or a whole GPU, on a node labelled for them.",
    ),
    Ineligible.OTHER_LABEL: _Row(
        _BLOCKED,
        f"{{nodes}} {{serve}} {{kind}} only (label {LABEL_PARTITIONING}={{given}}).",
        "Ask an administrator for a node that serves this kind of partition.",
    ),
    Ineligible.NO_MIG: _Row(_BLOCKED, "{gpus} {have} no MIG.", "Request an MPS slice, nvidia.com/gpu-<N>gb."),
    Ineligible.NO_MPS: _Row(
        _BLOCKED, "{gpus} {are} older than Volta, so MPS cannot limit memory there.", "Request a whole GPU."
    ),
}
WAIT_FOR_RELEASE = frozenset(why for why, row in _ROWS.items() if row.remedy == _WAIT_FOR_RELEASE)
"""Causes that end with the pods that hold something there."""
_NEARNESS = {ineligible: rank for rank, ineligible in enumerate(_ROWS)}
_KINDS: Mapping[str, str] = {Partitioning.MIG: "MIG instances", Partitioning.MPS: "MPS slices"}


def in_flight(causes: Sequence[Cause]) -> list[tuple[int, Answer]]:
    """Per node what may still serve a pod there; changes before agents that have not reported."""
    found = []
    for ineligible in (Ineligible.CHANGING, Ineligible.NOT_REPORTED, Ineligible.NO_PLAN):
        these = [cause for cause in causes if cause.ineligible is ineligible]
        if these:
            answer = nearest(these)
            found += [(cause.node, answer) for cause in these]
    return found


def nearest(causes: Sequence[Cause]) -> Answer:
    """The cause that is nearest to serving, with its remedy."""
    if not causes:
        message = "No node has GPUs for all requested partitions together. Request one kind of partition per pod."
        return Answer(UnplacedReason.BLOCKED, message)
    ineligible = min((cause.ineligible for cause in causes), key=_NEARNESS.__getitem__)
    row, these = _ROWS[ineligible], [cause for cause in causes if cause.ineligible is ineligible]
    others = [cause for cause in causes if cause.ineligible is not ineligible]
    return Answer(row.reason, f"{_filled(row.what, these)} {_filled(row.remedy, these)}", also(others))


def also(causes: Sequence[Cause], said: str = "") -> str:
    """One sentence per cause, without remedies; none that is `said` already."""
    by_kind: dict[Ineligible, list[Cause]] = {}
    for cause in sorted(causes, key=lambda cause: (_NEARNESS[cause.ineligible], cause.node)):
        by_kind.setdefault(cause.ineligible, []).append(cause)
    sentences = (_filled(_ROWS[ineligible].what, these) for ineligible, these in by_kind.items())
    return " ".join(one for one in sentences if one not in said)


def _filled(template: str, causes: Sequence[Cause]) -> str:
    several = len(causes) > 1
    names = list(dict.fromkeys(cause.name for cause in causes))
    indexes = sorted({cause.gpu for cause in causes if cause.gpu is not None})
    text = template.format(
        gpus=gpus_on((cause.name, cause.gpu) for cause in causes if cause.gpu is not None),
        nodes=f"node{'s' if len(names) > 1 else ''} {listed(names)}",
        plans=_listed_plans(names),
        indexes=",".join(str(index) for index in indexes),
        given=causes[0].given,
        kind=_KINDS.get(causes[0].given, causes[0].given),
        are="are" if several else "is",
        have="have" if several else "has",
        serve="serve" if several else "serves",
    )
    return sentence(text)


def _listed_plans(names: Iterable[str]) -> str:
    return listed([f"gpupartitionplan/{name}" for name in names])
