"""One scenario, and short words for what a remedy changes."""

from dataclasses import dataclass, replace

from controller.model.reasons import UnplacedReason
from controller.model.results import Unplaced
from controller.model.snapshot import Snapshot
from controller.model.views import GpuView, NodeView, PlannerOptions, PlanView, PodView
from controller.planner.inventory.stock import Ineligible
from controller.planning import plan
from tests.controller.planner.builders import cluster, mig, pod, server

Server = tuple[NodeView, PlanView]
DEFAULTS = PlannerOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """`remedy` are the words of the message that `after` carries out, `done` says how, in words for people."""

    reason: UnplacedReason
    what: str
    before: Snapshot
    remedy: str
    done: str
    after: Snapshot
    cause: Ineligible | None = None
    options: PlannerOptions = DEFAULTS
    after_options: PlannerOptions | None = None
    late: bool = False
    """The pass before has no time left."""

    def why(self) -> Unplaced:
        """What its owner reads before anything is done."""
        result = plan(self.before, self.options, out_of_time=lambda: self.late)
        return next(missed for missed in result.unplaced if missed.key[1] == "a")


A = pod("a", "1g.5gb")
SPARE = server("spare", mig())
"""A GPU node that is added."""


def with_plan(one: Server, **fields: object) -> Server:
    return one[0], replace(one[1], **fields)  # type: ignore[arg-type]  # by field name


def with_node(one: Server, **fields: object) -> Server:
    return replace(one[0], **fields), one[1]  # type: ignore[arg-type]  # by field name


def with_gpu(one: Server, **fields: object) -> Server:
    """Of each of its GPUs."""
    gpus: tuple[GpuView, ...] = tuple(replace(gpu, **fields) for gpu in one[1].gpus)  # type: ignore[arg-type]  # by field name
    return with_plan(one, gpus=gpus)


def alone(one: Server, pending: PodView = A) -> Snapshot:
    return cluster(one, pending=[pending])
