"""The nodes that have room for pods of several partitions or with filters, and what each would take there.

Takes nodes, groups and devices of the board. Nodes of some groups that may have the partitions are tried, the fullest
first; one that lacked them is left out until something on it changes, and one on which nothing changed is not looked at
twice. What a place loses holds until `renew`. Never judges whether a pod's filters accept a node.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from controller.model.demand import Demand, Wants
from controller.planner.board.devices import Device, Reach
from controller.planner.board.nodes import Group, NodeCapacity
from controller.planner.board.several_partitions import Found, may_give, on_node


class Offer(NamedTuple):
    """What a pod would take of a node that has had so many changes, and what that costs."""

    node: int
    changes: int
    cost: tuple[int, int, int]
    found: Found


class Rooms:
    """Made once per board."""

    def __init__(
        self,
        nodes: Sequence[NodeCapacity],
        groups: Sequence[Group],
        devices: Sequence[Sequence[Device]],
        rank: Mapping[str, int],
    ) -> None:
        """`devices` are those of each node, more may come; `rank`: resources, the hardest to place first."""
        self._nodes, self._groups, self._devices, self._rank = nodes, groups, devices, rank
        self._lists: dict[tuple[tuple[int, ...], Wants, Reach], dict[int, Offer | None]] = {}
        """Nodes of some groups that may have the partitions, the fullest first, with what was found there last."""
        self._missed: dict[tuple[Wants, Reach], dict[int, int]] = {}
        """Nodes that lacked them, after how many changes of the node."""

    def renew(self) -> None:
        """Something was taken off the board, or what is still to be placed has changed."""
        self._lists.clear()

    def offers(
        self,
        demand: Demand,
        groups: tuple[int, ...],
        reach: Reach,
        refused: Collection[int] = (),
        within: Collection[int] | None = None,
    ) -> Iterator[Offer]:
        """By nodes of these groups, or of those `within` alone, that have not refused the pod, the fullest first."""
        missed = self._missed.setdefault((demand.wants, reach), {})
        nodes = self._lists.get((groups, demand.wants, reach))
        if nodes is None:
            fullest_first = self._fullest_first(demand.wants, groups, reach)
            nodes = self._lists[groups, demand.wants, reach] = dict.fromkeys(fullest_first)
        for node, known in list(nodes.items()):
            capacity = self._nodes[node]
            if missed.get(node) == capacity.changes:
                del nodes[node]
                continue
            if node in refused or (within is not None and node not in within) or not capacity.fits(demand):
                continue
            offer = known
            if offer is None or offer.changes != capacity.changes:
                found = on_node(self._devices[node], demand, self._rank, reach)
                if found is None:
                    missed[node] = capacity.changes
                    del nodes[node]
                    continue
                offer = nodes[node] = Offer(node, capacity.changes, _cost(found), found)
            yield offer

    def _fullest_first(self, wants: Wants, groups: Iterable[int], reach: Reach) -> list[int]:
        """So that empty nodes stay whole."""
        nodes = [node for group in groups for node in self._groups[group].nodes]
        if reach < Reach.NEW:
            nodes = [node for node in nodes if may_give(self._devices[node], wants, reach)]
        load = {node: sum([len(device.parts) for device in self._devices[node]]) for node in nodes}
        return sorted(load, key=lambda node: (-load[node], node))


def _cost(found: Found) -> tuple[int, int, int]:
    """What it loses for others, whether it changes a GPU that would stay as it is, what it may lose for later ones."""
    return (
        sum(fitting.loss for _, fitting in found),
        sum(device.key & 3 for device, _ in found),
        sum(fitting.regret for _, fitting in found),
    )
