"""Leaves out the pods that no node can take in this pass, whatever else is placed: they cost no other pod a place.

Takes the board before anything is placed, and takes their node groups from such assignments: where no node has the
partitions and all else at once, or where filters refuse it for what stays as it is. A gang that lacks one of these is
left out whole. A pod that has waited long keeps its groups while a GPU is, or could be, drained for it. What can only
become less during a pass need not be tried again; in a level, a group or a budget of its own, such a pod would make the
search take another way. Never leaves out a pod that could be placed.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from controller.model.demand import Wants
from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board
from controller.planner.board.leftovers import Leftovers
from controller.planner.placement.constrained import ConstrainedPlacement
from controller.planner.placement.gangs import Gangs
from controller.simulator.terms import Pair

_ROUNDS = 4
"""What is left out may be what others need: gangs, and pods near which others must be."""

_LOOKS = 1_000_000
"""After so many at nodes, pods of one partition keep their groups: to place them takes no look at every node."""


def leave_out_hopeless(
    board: Board,
    assignments: Sequence[Assignment],
    gangs: Gangs,
    constrained: ConstrainedPlacement,
    may_serve: Callable[[Assignment], bool],
) -> None:
    """`may_serve`: whether a drain serves the pod, or could."""
    rooms = _Rooms(board)
    for _ in range(_ROUNDS):
        able = [one for one in assignments if one.groups]
        labels = Counter[Pair](pair for one in able for pair in one.pod.labels)
        hopes: dict[Hashable, bool] = {}
        for one in sorted(able, key=constrained.turn):
            pods_class = (constrained.equivalence_class(one), one.tried, bool(one.pod.gang))
            if pods_class not in hopes:
                many = rooms.looked > _LOOKS and one.demand.single is not None
                hopes[pods_class] = many or any(constrained.may_accept(one, node, labels) for node in rooms.nodes(one))
            if not hopes[pods_class] and not may_serve(one):
                one.groups = ()
        gangs.leave_out(assignments)
        if all(one.groups for one in able):
            break


class _Rooms:
    """Where pods have their partitions, while nothing is placed: nodes whose devices are alike are asked once."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._kinds: list[dict[Hashable, list[int]]] = [{} for _ in board.groups]
        for group, kinds in zip(board.groups, self._kinds, strict=True):
            for node in group.nodes:
                kind = tuple((id(each.pool), each.state, each.key, *each.ready.items()) for each in board.devices[node])
                kinds.setdefault(kind, []).append(node)
        self.looked = 0
        """At how many nodes, so far."""
        self._known: dict[tuple[Wants, Hashable], bool] = {}
        self._room: dict[Wants, Leftovers] = {}
        """What the nodes that have the partitions have left besides."""
        self._most = {name: most for most, name in sorted((a, n) for each in board.nodes for n, a in each.free.other)}
        """Of each other resource, what the node that has most of it has left."""

    def nodes(self, one: Assignment) -> Iterator[int]:
        room, fits = self._room.get(one.wants), False
        # Thousands of pods may need unlike resources or amounts that no node has: no node is asked for these, or, of
        # what has to be on one node together, once one pod found none.
        if any(self._most.get(name, 0) < amount for name, amount in one.needs.other):
            return
        if room is not None and not room.may_hold(one.needs):
            return
        for node in self._having(one, one.groups):
            self.looked += 1 + len(one.pod.host_ports)
            if self._board.fits(one, node):
                fits = True
                yield node
        if not fits and room is None:
            free = [self._board.nodes[node].free for node in self._having(one, range(len(self._board.groups)))]
            self._room[one.wants] = Leftovers(lambda: free)

    def _having(self, one: Assignment, groups: Iterable[int]) -> Iterator[int]:
        """Nodes of these groups with the partitions that the pod wants."""
        # Thousands of pods may request sizes of which no GPU has room for one: no node is asked for these.
        able = (group for group in groups if self._board.groups[group].gives(one.wants))
        for kind, nodes in (item for group in able for item in self._kinds[group].items()):
            if (one.wants, kind) not in self._known:
                self._known[one.wants, kind] = self._board.has_partitions(one, nodes[0])
            self.looked += 1
            yield from nodes if self._known[one.wants, kind] else ()
