"""Whether a GPU, and its node, could hold a pod once some of the GPU's holders have gone.

Takes devices and pods of a board, returns a yes or no. Never changes the board.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from controller.model.capacity import Capacity
from controller.model.demand import demand_of
from controller.model.views import PartitionView, PodView
from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board
from controller.planner.board.devices import NO_PARTS, Device, Reach
from controller.planner.board.setup import state_of
from controller.planner.board.several_partitions import on_node
from controller.planner.inventory.stock import NodeStock


def could_hold_with(
    assignment: Assignment, device: Device, stock: NodeStock, retained: Sequence[PartitionView], board: Board
) -> bool:
    """Whether the GPU could hold all partitions of the pod if of those in use only these stayed."""
    gpu = stock.gpus[device.gpu]
    if gpu.model is None:
        return False
    state = state_of(replace(gpu, retained=tuple(retained)), gpu.model)
    left = replace(device, state=state, ready=NO_PARTS, parts=[])
    return on_node([left], assignment.demand, board.rank, Reach.NEW) is not None


def fits_without(
    assignment: Assignment, node: int, titles: Iterable[str], board: Board, bound: Mapping[str, PodView]
) -> bool:
    """Whether the node has room for the pod once these holders have gone.

    What others hold there stays for as long as is known, so that a drain would close the GPU in vain.
    """
    demand, place = assignment.demand, board.nodes[node]
    holders = [pod for title in sorted(titles) if (pod := bound.get(title)) is not None]
    free = place.free + Capacity.total(demand_of(pod).holds for pod in holders)
    if not free.fits(demand.needs) or place.lacks(demand):
        return False
    if not demand.host_ports:
        return True
    usage = place.usage.copy()
    for pod in holders:
        usage.remove(pod)
    return not any(usage.conflicting(demand.host_ports))
