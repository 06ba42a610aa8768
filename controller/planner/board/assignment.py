"""A pending pod on the board: the node and the partitions that this pass has assigned to it, if any.

Only the board changes an assignment. What the pod needs is its demand, which never changes.
"""

from dataclasses import dataclass, field

from controller.model.capacity import Capacity
from controller.model.demand import Demand, Wants
from controller.model.results import PlannerPhase
from controller.model.views import PodView
from controller.planner.board.devices import Device, Part

Taken = list[tuple[Device, Part]]


@dataclass(slots=True, kw_only=True, eq=False)
class Assignment:
    """`groups` are the node groups that the pod's selectors and tolerations allow."""

    demand: Demand
    pod: PodView = field(init=False)
    wants: Wants = field(init=False)
    needs: Capacity = field(init=False)
    tried: bool = field(init=False)
    """These four are its demand's, copied: they are read all the time."""
    groups: tuple[int, ...]
    shape: int
    """Equal for pods that fit exactly where the other fits."""
    constrained: bool = False
    """Where it may go depends on other pods or on volumes: no place without the filters (`Board.filters`)."""
    node: int = -1
    taken: Taken = field(default_factory=list)
    noted: int = -1
    phase: PlannerPhase | None = None
    """The phase that found it where it was after the last one: on this node."""
    missed: int = 0
    """How often a step has left it out in this pass."""
    left_out: int = 0
    """The same when the present try began: it is placed before others then."""
    rank: int = 0
    """Its level among those that are placed in one go: pods of lower numbers are admitted first."""

    def __post_init__(self) -> None:
        demand = self.demand
        self.pod, self.wants, self.needs, self.tried = demand.pod, demand.wants, demand.needs, demand.tried

    @property
    def placed(self) -> bool:
        return self.node >= 0
