"""The cluster at one moment, as one value: all that a planning pass reads.

Made by the cache for each pass, by tests and by `gpuplan plan`; `controller.planning` turns it into a result. Never
changed, so that a pass can be made again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from itertools import chain

from controller.model.demand import DemandSet
from controller.model.equal_shares import most_units
from controller.model.misnamed import mig_names
from controller.model.scheduling import NO_CONTEXT, SchedulingContext
from controller.model.serving import Serving, collect
from controller.model.views import DEFAULT_SCHEDULERS, NodeView, PlanView, PodView


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The cluster at one moment: nodes and plans sorted by name, pods by namespace and name.

    `pods` are bound and not finished (terminating ones included), `pending` neither. A node without a plan has none in
    `plans`. `reservations` (pod uid -> node) come from `placed` of the passes before: who was planned where goes there
    again if it still fits, so that supply under way is not assigned again. They may be empty, as after a start.
    """

    nodes: tuple[NodeView, ...] = ()
    pods: tuple[PodView, ...] = ()
    pending: tuple[PodView, ...] = ()
    plans: tuple[PlanView, ...] = ()
    reservations: Mapping[str, str] = field(default_factory=dict)
    context: SchedulingContext = NO_CONTEXT
    other_nodes: tuple[NodeView, ...] = ()
    """Nodes without GPUs, and in `other_pods` the pods on them: only while spreading or pod affinity counts them."""
    other_pods: tuple[PodView, ...] = ()
    bind_failures: Mapping[str, str] = field(default_factory=dict)
    """Pods (uid -> node) that had their partitions there twice and were not bound: left alone for a while."""
    finished_gangs: frozenset[tuple[str, str]] = frozenset()
    """Namespace and name of gangs of which a member has run and ended while others are there: replacements may come."""
    aged: frozenset[str] = frozenset()
    """Uids of pending pods that have waited so long that they count as the next priority level."""
    drained_for: frozenset[str] = frozenset()
    """Those of them that have waited so much longer that a GPU is drained for the oldest."""
    resting: frozenset[str] = frozenset()
    """Those for which a GPU was drained in vain: for now it is the turn of others."""
    unexamined: tuple[str, ...] = ()
    """Uids of pods for which the pass before had no work left, longest first: they have their turn before others."""
    scheduler_names: frozenset[str] = DEFAULT_SCHEDULERS
    """Schedulers whose pods are served."""
    judged: InitVar[DemandSet | None] = None
    """What the cache has judged of these pending pods already."""
    demands: DemandSet = field(init=False, repr=False, compare=False)
    """What the pending pods demand, and why some are not served: follows from the other fields."""

    def __post_init__(self, judged: DemandSet | None) -> None:
        object.__setattr__(self, "demands", self._judge() if judged is None else judged)

    def _judge(self) -> DemandSet:
        by_name = any(pod.names_shared for pod in self.pending)
        serving = Serving(
            scheduler_names=self.scheduler_names,
            dra_resources=self.context.dra_resources,
            advertised=advertised(self.nodes) if by_name else frozenset(),
            mig_names=mig_names(self.plans) if by_name else frozenset(),
            most_units=most_units(self.plans) if by_name else 0,
        )
        return collect(self.pending, serving, bind_failures=self.bind_failures)


def advertised(nodes: Iterable[NodeView]) -> frozenset[str]:
    """The names of all resources that these nodes have."""
    return frozenset(chain.from_iterable(node.allocatable for node in nodes))
