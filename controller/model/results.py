"""What one planning pass returns: changes of plans, who is placed where, why others are not, and counts.

`controller.planning` makes a PlanningResult from a Snapshot; the writer, nominations, Events, metrics and
`gpuplan plan` read it. Values only: no clock, no API.
"""

import traceback
from dataclasses import dataclass, field
from enum import StrEnum

from controller.model.reasons import UnplacedReason
from controller.model.values import value
from controller.model.views import PlannedGpu, PodKey, PodView


class Supply(StrEnum):
    """Where a placed pod's partitions come from."""

    EXISTING = "existing"
    UNDER_WAY = "under-way"
    NEW = "new"


class PlannerPhase(StrEnum):
    """The parts of a pass in which pods find their nodes, in about their order; some come once per priority level."""

    DRAINED = "drained"
    RESERVATIONS = "reservations"
    UNTRIED = "untried"
    GREEDY = "greedy"
    EXCHANGED = "exchanged"
    CONSTRAINED = "constrained"
    GANGS = "gangs"
    TOGETHER = "together"
    OLDER_FIRST = "older-first"


class CutShort(StrEnum):
    """What ended a pass before every pod was examined on every node."""

    WORK = "work"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChange:
    """The complete new `spec.planned.gpus` of one node, sorted by index; `changed` are the indexes that differ."""

    node: str
    gpus: tuple[PlannedGpu, ...]
    changed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFailure:
    """A node that was left out because planning it raised an error: its plan stays as it is."""

    node: str
    message: str
    """The error in one line."""
    trace: str = ""

    @classmethod
    def of(cls, node: str, error: Exception) -> "NodeFailure":
        message = " ".join(f"{type(error).__name__}: {error}".split())
        return cls(node=node, message=message, trace="".join(traceback.format_exception(error)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFailure:
    """A pod whose data raised an error: of a bound one only what it holds counts, and no pending one is planned."""

    uid: str
    key: PodKey
    message: str
    """The error in one line."""
    trace: str = ""

    @classmethod
    def of(cls, pod: PodView, error: Exception) -> "PodFailure":
        found = NodeFailure.of(pod.node, error)
        return cls(uid=pod.uid, key=pod.key, message=found.message, trace=found.trace)


@value
class Placed:
    """A pending pod that has, or will have, its partitions on `node`."""

    uid: str
    key: PodKey
    node: str
    supply: Supply
    gpus: tuple[int, ...] = ()
    """Indexes of the GPUs that have, or will have, its partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """A pending pod that gets nothing in this pass, why, and what would help."""

    uid: str
    key: PodKey
    reason: UnplacedReason
    message: str
    """For the pod's owner. It stays the same while the cause does: no names of other pods, no numbers that vary."""
    detail: str = ""
    """For an administrator: the numbers and names of this moment."""

    @property
    def full(self) -> str:
        return f"{self.message} {self.detail}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """A GPU of which partitions are drained, for a pod that has waited long."""

    uid: str
    key: PodKey
    node: str
    gpu: int
    """Its index."""
    partitions: tuple[str, ...]
    """Ids, sorted."""
    holders: tuple[str, ...]
    """Pods that have to release one of them, sorted."""
    created: tuple[int, ...]
    """When each of these was, where that is known, else 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What the pass did, for metrics and the log line."""

    placed_existing: int = 0
    placed_under_way: int = 0
    placed_new: int = 0
    unplaced: int = 0
    gpus_changed: int = 0
    partitions_created: int = 0
    partitions_destroyed: int = 0
    placed_by: tuple[tuple[PlannerPhase, int], ...] = ()
    """Placed pods by the phase that gave them their node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanningResult:
    """What one pass decided. `bound`: no plan could place more pods than this, the placed ones included."""

    node_changes: tuple[NodeChange, ...] = ()
    placed: tuple[Placed, ...] = ()
    unplaced: tuple[Unplaced, ...] = ()
    failures: tuple[NodeFailure, ...] = ()
    pod_failures: tuple[PodFailure, ...] = ()
    remarks: tuple[str, ...] = ()
    """What this pass could not do, for the log: a bound that could not be computed, work that was cut short."""
    cut_short: CutShort | None = None
    bound: int = 0
    drained: tuple[Drained, ...] = ()
    unexamined: tuple[str, ...] = ()
    """Uids of pods for which no work was left: they have their turn in this order, and first, in the next pass."""
    counts: Counts = field(default_factory=Counts)
