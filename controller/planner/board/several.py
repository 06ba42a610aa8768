"""Finds the best node of a group for a pod that requests several partitions, and devices for all of them.

Takes a demand, a group and how far to reach; returns the devices with what each gives, or None. The partitions of one
pod come from one node, and from as many of its GPUs as need be. Of the first nodes that have them, the one where fewest
GPUs change is chosen. Nodes that lack them are remembered until something on them changes. Never assigns anything.
"""

from __future__ import annotations

from collections.abc import Hashable

from controller.model.demand import Demand
from controller.planner.board.candidates import Devices, Found, NodeLists, on_node
from controller.planner.board.devices import Reach

_COMPARED, _COMPARISONS = 12, 2_000
"""How many nodes are compared for one pod with several partitions, and how many in one pass."""


class SeveralFinder:
    """Made once per pass."""

    def __init__(self, board: Devices, lists: NodeLists) -> None:
        self._board = board
        self._lists = lists
        self._missed: dict[Hashable, dict[int, int]] = {}
        """Per partitions and reach: nodes that lacked them, after how many changes of the node."""
        self._comparisons = _COMPARISONS

    def find(self, demand: Demand, group: int, reach: Reach) -> Found | None:
        nodes = self._lists.nodes(demand.wants, group, reach)
        missed = self._missed.setdefault((demand.wants, reach), {})
        passed: list[int] = []
        best: tuple[int, Found] | None = None
        position = compared = 0
        while position < len(nodes) and compared < _COMPARED and (best is None or (best[0] and self._comparisons > 0)):
            node = nodes[position]
            position += 1
            capacity = self._board.nodes[node]
            if missed.get(node) == capacity.changes:
                continue
            if not capacity.fits(demand):
                passed.append(node)
                continue
            found = on_node(self._board, demand, node, reach)
            if found is None:
                missed[node] = capacity.changes
                continue
            passed.append(node)
            compared += 1
            self._comparisons -= 1
            changes = _gpus_to_change(found)
            if best is None or changes < best[0]:
                best = changes, found
        # Nodes without the partitions will not have them until something is taken off: skip them from now on.
        nodes[:position] = passed
        return None if best is None else best[1]


def _gpus_to_change(found: Found) -> int:
    return len({device.gpu for device, fitting in found if not fitting.part.ready and not device.changed})
