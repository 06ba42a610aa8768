"""Clusters in which pods have waited long for what others hold, and how to read what is drained for them."""

from collections import Counter
from dataclasses import replace

from controller.model.reasons import UnplacedReason
from controller.model.results import PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import GpuView, NodeView, PlannerOptions, PlanView, PodView
from controller.planning import plan
from tests.controller.planner.builders import cluster, holder, mig, pod, server
from tests.controller.planner.checker import check
from tests.controller.planner.world import applied

LARGE = pod("large", "7g.40gb", created=5)
SMALL = pod("small", "1g.5gb", created=9)
Node = tuple[NodeView, PlanView]


def held(count: int, index: int = 0, *, profile: str = "1g.5gb", by: str = "team/holder") -> GpuView:
    return mig(index, used=[(profile, start) for start in range(count)], holder=by)


def scene(*nodes: Node, pending: list[PodView], priority: int = 0) -> Snapshot:
    """With a bound pod for each holder that a status names; it came after those that wait."""
    parts = [(view.name, part) for _, view in nodes for gpu in view.gpus for part in gpu.used if part.pod]
    count = Counter((name, part.pod.removeprefix("team/"), part.resource) for name, part in parts)
    bound = [holder(node, (resource, number), name=name) for (node, name, resource), number in count.items()]
    later = [replace(one, created=20, priority=priority) for one in bound]
    return cluster(*nodes, pods=later, pending=pending)


def one_each(*holders: int) -> list[Node]:
    """Nodes with one GPU each, of which so many slices are held."""
    return [server(f"node-{n}", held(count, by=f"team/holder-{n}")) for n, count in enumerate(holders, 1)]


def planned(snapshot: Snapshot, *waiting: PodView, options: PlannerOptions | None = None) -> PlanningResult:
    uids = frozenset(one.uid for one in waiting)
    snapshot = replace(snapshot, aged=uids, drained_for=uids)
    result = plan(snapshot, options)
    check(snapshot, result)
    return result


def following(snapshot: Snapshot, result: PlanningResult) -> Snapshot:
    """The plans as they were written."""
    return applied(snapshot, result)


def where(result: PlanningResult) -> dict[str, str]:
    return {one.key[1]: one.node for one in result.placed}


def drained(result: PlanningResult) -> dict[str, tuple[str, int]]:
    return {one.key[1]: (one.node, one.gpu) for one in result.drained}


def message(result: PlanningResult, name: str) -> tuple[UnplacedReason, str]:
    (found,) = [(one.reason, one.full) for one in result.unplaced if one.key[1] == name]
    return found


def ended(snapshot: Snapshot, name: str) -> Snapshot:
    """This holder has ended."""

    def free(found: PlanView) -> PlanView:
        gpus = [
            replace(
                gpu,
                partitions=tuple(
                    replace(part, state="Free", pod="") if part.pod == f"team/{name}" else part
                    for part in gpu.partitions
                ),
            )
            for gpu in found.gpus
        ]
        return replace(found, gpus=tuple(gpus))

    pods = tuple(one for one in snapshot.pods if one.name != name)
    return replace(snapshot, pods=pods, plans=tuple(map(free, snapshot.plans)))
