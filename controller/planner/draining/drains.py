"""Carries on the drains that the plans hold, and ends those that are not needed any more.

Takes the board before any pod is placed: a pod whose partitions fit on the GPU that was drained for it gets them there,
before all others; until then the GPU is full for every other pod. A drain ends where its pod has a place, is gone or
rests, where its GPU is not ours to change any more, or could not hold it, and where a pod of higher priority could have
that place. Nothing is remembered here: plans have the drains, and the snapshot says whose turn is over.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controller.model.results import Drained
from controller.model.snapshot import Snapshot
from controller.model.views import Drain, PartitionView
from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board
from controller.planner.board.devices import Device, Reach
from controller.planner.board.several_partitions import taken_of
from controller.planner.draining.holding import could_hold_with
from controller.planner.inventory.stock import GpuStock, Ineligible, NodeStock
from controller.planner.placement.constrained import ConstrainedPlacement

_FOR_NOW = (Ineligible.CHANGING, Ineligible.BACKING_OFF, Ineligible.WRITE_REFUSED)
"""Such a GPU may be ours to change again within seconds. That of a silent agent may never be: another is drained."""


@dataclass(slots=True, kw_only=True, eq=False)
class GpuDrain:
    """One GPU that is drained."""

    assignment: Assignment
    node: int
    stock: NodeStock
    gpu: GpuStock
    drain: Drain
    device: Device | None
    """None while the GPU may not be changed."""

    @property
    def held(self) -> tuple[PartitionView, ...]:
        """What is drained and in use."""
        return tuple(part for part in self.gpu.retained if part.id in self.drain.partitions)

    def result(self, created: Mapping[str, int]) -> Drained:
        """`created`: when each pod was, by title."""
        holders = sorted({part.pod for part in self.held})
        return Drained(
            uid=self.drain.uid,
            key=self.drain.pod,
            node=self.stock.name,
            gpu=self.gpu.view.index,
            partitions=self.drain.partitions,
            holders=tuple(holders),
            created=tuple(created.get(title, 0) for title in holders),
        )


@dataclass(slots=True, kw_only=True, eq=False)
class Drains:
    """Those of one pass."""

    snapshot: Snapshot
    most: int
    """No more at a time."""
    board: Board
    stocks: Sequence[NodeStock]
    constrained: ConstrainedPlacement
    found: list[GpuDrain] = field(default_factory=list)
    served: list[Assignment] = field(default_factory=list)
    """Pods that this pass gives what was drained for them: they stay where they are."""
    ended: set[str] = field(default_factory=set)
    """Uids of pods whose drain this pass has ended: their next turn is in another one."""

    def carry_on(self, assignments: Sequence[Assignment]) -> None:
        """What the plans hold, before any pod is placed."""
        drains = [(node, gpu, gpu.drain) for node, stock in enumerate(self.stocks) for gpu in stock.gpus if gpu.drain]
        by_uid = {one.pod.uid: one for one in assignments if one.tried} if drains else {}
        drains.sort(key=lambda found: sum(part.id in found[2].partitions for part in found[1].retained))
        for node, gpu, drain in drains:
            one = by_uid.get(drain.uid)
            # The plan of a node that was away may still have an earlier drain for the pod: fewest holders go on.
            over = drain.uid in self.snapshot.resting.union(each.drain.uid for each in self.found)
            over = over or len(self.found) >= self.most
            if one is not None and not one.placed and not over and self.board.group_of[node] in one.groups:
                self._carry_on(one, node, gpu, drain, assignments)

    def _carry_on(
        self, one: Assignment, node: int, gpu: GpuStock, drain: Drain, assignments: Sequence[Assignment]
    ) -> None:
        board, stock = self.board, self.stocks[node]
        device = next((each for each in board.devices[node] if each.gpu >= 0 and stock.gpus[each.gpu] is gpu), None)
        going_on = GpuDrain(assignment=one, node=node, stock=stock, gpu=gpu, drain=drain, device=device)
        if device is None:
            if gpu.ineligible in _FOR_NOW:
                self.begin(going_on)
            return
        found = board.found_among([device], one, node, Reach.NEW)
        if found is not None and (not one.constrained or self.constrained.accepts(one, node)):
            if not any(self._could_have(each, node, device) for each in _above(one, assignments)):
                board.put(one, node, taken_of(found))
                self.served.append(one)
        elif could_hold_with(one, device, stock, [p for p in gpu.retained if p.id not in drain.partitions], board):
            self.begin(going_on)

    def begin(self, one: GpuDrain) -> None:
        """No other pod gets anything new of it."""
        self.found.append(one)
        if one.device is not None:
            self.board.drain(one.assignment, one.device)
        self._withhold(one.node)

    def _withhold(self, node: int) -> None:
        parts = (part for each in self.found if each.node == node for part in each.held)
        self.board.nodes[node].withheld = frozenset(part.resource for part in parts)

    def settle(self, assignments: Sequence[Assignment]) -> None:
        """After all were placed: end those that are needed no more, or stand in the way of a higher priority."""
        for one in tuple(self.found):
            above = _above(one.assignment, assignments)
            if one.assignment.placed or any(self._costs(one, each) for each in above):
                self.end(one)

    def _costs(self, one: GpuDrain, other: Assignment) -> bool:
        """The other pod could have a place but for this drain."""
        if {name for name, _ in other.wants} & {part.resource for part in one.held}:
            return True
        if one.device is None:
            return False
        self.board.end_drain(one.assignment, one.device)
        could = self._could_have(other, one.node, one.device)
        self.board.drain(one.assignment, one.device)
        return could

    def _could_have(self, one: Assignment, node: int, device: Device) -> bool:
        board = self.board
        return board.group_of[node] in one.groups and board.found_among([device], one, node, Reach.NEW) is not None

    def end(self, one: GpuDrain) -> None:
        """Its GPU is as any other from now on."""
        self.found.remove(one)
        self.ended.add(one.assignment.pod.uid)
        if one.device is not None:
            self.board.end_drain(one.assignment, one.device)
        self._withhold(one.node)

    def results(self) -> tuple[Drained, ...]:
        """What is drained when all has been decided."""
        created = {pod.title: pod.created for pod in self.snapshot.pods if pod.gpu} if self.found else {}
        return tuple(one.result(created) for one in self.found)

    def by_gpu(self, node: int) -> Mapping[int, Drain]:
        """Those of one node, by the index of the GPU."""
        return {one.gpu.view.index: one.drain for one in self.found if one.node == node}


def _above(one: Assignment, assignments: Sequence[Assignment]) -> list[Assignment]:
    """Those of a higher priority that wait: of alike ones the highest."""
    above = [each for each in assignments if each.pod.priority > one.pod.priority and each.tried and not each.placed]
    return list({each.shape: each for each in sorted(above, key=lambda each: each.pod.priority)}.values())
