"""The nodes that have room for constrained pods, and what each would take there; remembered while pods only come.

Takes the board; a node that lacked the partitions is left out until it may have some again, and one on which nothing
changed is not looked at twice. Made again once a pod has left, or other pods are to be placed. Never judges whether a
pod's filters accept a node.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from controller.model.demand import Wants
from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board
from controller.planner.board.devices import Reach
from controller.planner.board.several import Found, on_node


class Offer(NamedTuple):
    """What a pod would take of a node that has had so many changes, and what that costs."""

    node: int
    changes: int
    cost: tuple[int, int, int]
    found: Found


class Rooms:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._nodes: dict[tuple[tuple[int, ...], Wants, Reach], dict[int, Offer | None]] = {}
        """Those of some groups that may have the partitions, the fullest first, with what was found there last."""

    def changed(self, node: int) -> None:
        """A pod came there that may have changed a GPU: more may be within reach of others."""
        for (groups, _, reach), nodes in self._nodes.items():
            if reach is Reach.CHANGED and self._board.group_of[node] in groups:
                nodes.setdefault(node)

    def offers(
        self, assignment: Assignment, reach: Reach, refused: Collection[int], within: Collection[int] | None
    ) -> Iterator[Offer]:
        """By nodes of its groups, or of those `within` alone, that have not refused it, the fullest first."""
        board = self._board
        key = (assignment.groups, assignment.wants, reach)
        nodes = self._nodes.get(key)
        if nodes is None:
            nodes = self._nodes[key] = dict.fromkeys(self._fullest_first(assignment, reach))
        for node, known in list(nodes.items()):
            capacity = board.nodes[node]
            if node in refused or (within is not None and node not in within) or not capacity.fits(assignment.demand):
                continue
            offer = known
            if offer is None or offer.changes != capacity.changes:
                found = on_node(board.devices[node], assignment.demand, board.rank, reach)
                if found is None:
                    del nodes[node]
                    continue
                offer = nodes[node] = Offer(node, capacity.changes, _cost(found), found)
            yield offer

    def _fullest_first(self, assignment: Assignment, reach: Reach) -> list[int]:
        """So that empty nodes stay whole."""
        board = self._board
        nodes: Iterable[int] = (node for group in assignment.groups for node in board.groups[group].nodes)
        if reach <= Reach.UNDER_WAY:
            ready = [board.once_ready(name) for name, _ in assignment.wants]
            nodes = (node for node in nodes if all(node in each for each in ready))
        elif reach is Reach.CHANGED:
            nodes = (node for node in nodes if any(device.changed for device in board.devices[node]))
        load = {node: sum(len(device.parts) for device in board.devices[node]) for node in nodes}
        return sorted(load, key=lambda node: (-load[node], node))


def _cost(found: Found) -> tuple[int, int, int]:
    """What it loses for others, whether it changes a GPU that would stay as it is, what it may lose for later ones."""
    return (
        sum(fitting.loss for _, fitting in found),
        sum(device.key & 3 for device, _ in found),
        sum(fitting.regret for _, fitting in found),
    )
