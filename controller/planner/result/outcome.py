"""Puts together what a pass returns: changes of plans, placed and unplaced pods, and counts for metrics.

Takes the finished board and why pods wait, returns the PlanningResult. Repairs of `spec.planned` are written even where
no pod is placed; new layouts only where one is.
"""

from collections import Counter
from collections.abc import Sequence

from controller.model.results import Counts, Placed, PlanningResult, Supply, Unplaced
from controller.planner.board.assignment import Assignment
from controller.planner.board.devices import Device, Part, Reach
from controller.planner.inventory.stock import NodeStock
from controller.planner.isolation import by_node
from controller.planner.result.layouts import Realised, realise
from controller.planner.result.repair import drained, repaired
from controller.planner.search import Finished

_SUPPLIES = (Supply.EXISTING, Supply.UNDER_WAY, Supply.NEW)


def outcome(finished: Finished, unplaced: tuple[Unplaced, ...]) -> PlanningResult:
    """`unplaced`: why the pods that are not on the board wait."""
    assignments, stocks = finished.tried, finished.stocks
    placed = tuple(_placed(one, stocks) for one in assignments if one.placed)
    supplies = Counter(one.supply for one in placed)
    realised = _realise_all(finished, any_placed=bool(placed))
    return PlanningResult(
        node_changes=tuple(one.change for one in realised),
        placed=placed,
        unplaced=unplaced,
        bound=finished.bound,
        remarks=tuple(finished.remarks),
        drained=finished.drains.results(),
        unexamined=_unexamined(finished),
        counts=Counts(
            placed_existing=supplies[Supply.EXISTING],
            placed_under_way=supplies[Supply.UNDER_WAY],
            placed_new=supplies[Supply.NEW],
            unplaced=len(unplaced),
            gpus_changed=sum(len(one.change.changed) for one in realised),
            partitions_created=sum(one.created for one in realised),
            partitions_destroyed=sum(one.destroyed for one in realised),
            placed_by=tuple(finished.placed_by.items()),
        ),
    )


def _unexamined(finished: Finished) -> tuple[str, ...]:
    """Namespaces take turns, and of each those come first that had no turn in the pass before either."""
    before, cut, groups = finished.constrained.first, finished.constrained.unexamined, finished.groups
    waiting = [one.pod for one in finished.tried if not one.placed]
    pods = [pod for pod in waiting if pod.uid in cut or groups.unexamined(pod)]
    number, turns = Counter[str](), dict[str, int]()
    for pod in sorted(pods, key=lambda pod: before.get(pod.uid, len(before))):
        number[pod.namespace] += 1
        turns[pod.uid] = number[pod.namespace]
    return tuple(sorted(turns, key=turns.__getitem__))


def _realise_all(finished: Finished, *, any_placed: bool) -> list[Realised]:
    board, drains = finished.board, finished.drains

    def change(node: int, stock: NodeStock) -> Realised | None:
        if stock.plan is None:
            return None
        changed = [device for device in board.devices[node] if any_placed and device.parts and device.changed]
        return realise(stock, drained(stock, repaired(stock), drains.by_gpu(node)), changed)

    return [found for found in by_node(change, finished.stocks) if found is not None]


def _placed(assignment: Assignment, stocks: Sequence[NodeStock]) -> Placed:
    """A pod waits for its last partition: new before under way before existing."""
    pod, stock, taken = assignment.pod, stocks[assignment.node], assignment.taken
    supply = max((_supply(device, part) for device, part in taken), key=_SUPPLIES.index)
    gpus = sorted({stock.gpus[device.gpu].view.index for device, _ in taken if device.gpu >= 0})
    return Placed(uid=pod.uid, key=pod.key, node=stock.node.name, supply=supply, gpus=tuple(gpus))


def _supply(device: Device, part: Part) -> Supply:
    if device.pool.reach is Reach.UNDER_WAY:
        return Supply.UNDER_WAY
    return Supply.EXISTING if part.ready else Supply.NEW
