"""Lets pods with equal partitions change places where others wait for CPU or memory that only some nodes have.

Takes the board and the pods that may move, placed or not. Heavy pods leave nodes that are short of CPU or memory for
those that have most of it, light ones come in return, partition for partition, so that no GPU changes; then those that
wait get what that leaves. Bounded by a count of rounds and probes. Never leaves fewer pods placed.
"""

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from operator import attrgetter

from controller.model.capacity import Capacity
from controller.model.demand import Wants
from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board

_FEWER, _ROUNDS = 4, 8
_FEWER_PROBES, _PROBES = 8, 32
"""So many nodes are probed for one pod that should leave its own. Fewer, and in fewer rounds, where a pass is large."""

Amount = Callable[[Capacity], int]


def change_places(
    board: Board, assignments: Sequence[Assignment], cost: Callable[[Assignment], float], most: int
) -> int:
    """No more than `most` of those that wait can find a place. Returns how many more are placed."""
    waiting = sorted(
        (one for one in assignments if not one.placed),
        key=lambda one: (one.rank, cost(one), one.pod.created, one.pod.key),
    )
    gained = 0
    for number in range(_ROUNDS):
        if not waiting or gained >= most or (number >= _FEWER and not board.effort.spare()):
            break
        _change_all(board, [one for one in assignments if one.placed], waiting)
        left = [one for one in waiting if not board.place(one)]
        if len(left) == len(waiting):
            break
        gained += len(waiting) - len(left)
        waiting = left
    return gained


def _change_all(board: Board, placed: Sequence[Assignment], waiting: Sequence[Assignment]) -> None:
    equal: dict[Wants, list[Assignment]] = {}
    for one in placed:
        if not one.demand.host_ports:
            equal.setdefault(one.wants, []).append(one)
    amounts: tuple[Amount, ...] = (attrgetter("cpu_milli"), attrgetter("memory_bytes"))
    for amount in amounts:
        enough = max(amount(one.needs) for one in waiting)
        for members in equal.values():
            _Change(board, amount, members).run(enough)


class _Change:
    """Among pods with equal partitions, by CPU or by memory."""

    def __init__(self, board: Board, amount: Amount, equal: Sequence[Assignment]) -> None:
        self._board = board
        self._amount = amount
        self._probes = _PROBES if board.effort.spare() else _FEWER_PROBES
        self._heaviest_first = sorted(equal, key=lambda one: (-amount(one.needs), self._free(one.node), one.node))
        self._members: dict[int, list[Assignment]] = {}
        """Those of each node, the lightest last."""
        for one in self._heaviest_first:
            self._members.setdefault(one.node, []).append(one)
        self._richest = [(-self._free(node), node) for node in self._members]
        """A heap; an entry is right when it shows what its node has left now."""
        heapify(self._richest)
        self._came: set[int] = set()
        """Light pods on the nodes that they relieve."""
        self._relieved: set[int] = set()
        self._relieving: set[int] = set()
        """No node is both, or pods would come and go in turn."""

    def run(self, enough: int) -> None:
        """Nodes that have `enough` left need no relief."""
        for heavy in self._heaviest_first:
            if id(heavy) in self._came or heavy.node in self._relieving or self._free(heavy.node) >= enough:
                continue
            light = self._light_for(heavy)
            if light is not None:
                self._relieved.add(heavy.node)
                self._relieving.add(light.node)
                self._came.add(id(light))
                before = ((heavy, light.node, light.taken), (light, heavy.node, heavy.taken))
                self._board.restore((heavy, light), before)

    def _free(self, node: int) -> int:
        return self._amount(self._board.nodes[node].free)

    def _light_for(self, heavy: Assignment) -> Assignment | None:
        """A lighter pod on the node that has most left, if both fit in each other's place."""
        aside: list[tuple[int, int]] = []
        found = None
        while self._richest and found is None and len(aside) < self._probes:
            free, node = self._richest[0]
            members = self._members[node]
            if not members or node in self._relieved:
                heappop(self._richest)
            elif -free != self._free(node):
                heapreplace(self._richest, (-self._free(node), node))
            elif -free <= self._free(heavy.node):
                break
            elif self._amount(members[-1].needs) < self._amount(heavy.needs) and self._fit(heavy, members[-1]):
                found = members.pop()
            else:
                aside.append(heappop(self._richest))
        self._board.effort.looks += len(aside)
        for entry in aside:
            heappush(self._richest, entry)
        return found

    def _fit(self, one: Assignment, other: Assignment) -> bool:
        """Each where the other is."""
        board = self._board
        return all(
            board.group_of[leaving.node] in coming.groups
            and (board.nodes[leaving.node].free + leaving.demand.holds).fits(coming.needs)
            for coming, leaving in ((one, other), (other, one))
        )
