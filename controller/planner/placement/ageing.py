"""Reserve one GPU for the pod that has waited longest, so that smaller pods cannot starve it.

Takes the board after a level was placed. Of the level's aged asks without a place, the oldest gets the GPU with the
fewest holders of all that could hold it: younger asks of this level are taken off that GPU, and where the ask fits
then, it is placed. Otherwise the GPU, and the ask's CPU and memory on its node, are kept from everything that is placed
later in the pass. Nothing is remembered: nobody new comes to that GPU, so that its holders only become fewer and the
next pass finds it again. Never moves a pod that is bound or has a reservation, or one of a higher priority. Gangs
and pods whose partitions need several GPUs get no reservation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from controller.model.views import PartitionView
from controller.planner.board.assignment import Ask
from controller.planner.board.board import Board
from controller.planner.board.devices import Device, Reach
from controller.planner.board.setup import state_of
from controller.planner.inventory.stock import NodeStock
from controller.planner.placement.constrained import Singly
from partitioning.layouts import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """The GPU that is kept for an ask, or on which the ask was placed because others yielded."""

    ask: Ask
    device: Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Ageing:
    """What reserving needs to know of the pass."""

    aged: Collection[str]
    """Uids of pods that have waited too long."""
    stocks: Sequence[NodeStock]
    reservations: Mapping[str, int]
    singly: Singly


def reserve(board: Board, asks: Sequence[Ask], ageing: Ageing) -> Reservation | None:
    """`asks` are those of one level, after they were placed. At most one of them is helped, placed or not."""
    waiting = [ask for ask in asks if ask.node < 0 and _may_reserve(ask, ageing)]
    for ask in sorted(waiting, key=_age):
        yielding = [one for one in asks if _yields(one, ask, ageing)]
        device = _nearest(board, ask, yielding, ageing)
        if device is not None:
            return _reserve(board, ask, device, yielding, ageing.singly)
    return None


def _may_reserve(ask: Ask, ageing: Ageing) -> bool:
    return ask.demand.tried and ask.demand.pod.uid in ageing.aged and not ask.demand.pod.gang


def _age(ask: Ask) -> tuple[int, tuple[str, str]]:
    return (ask.demand.pod.created, ask.demand.pod.key)


def _yields(one: Ask, to: Ask, ageing: Ageing) -> bool:
    """Whether an ask of the same level gives up a place that this pass has given it."""
    pod = one.demand.pod
    reserved = ageing.reservations.get(pod.uid) == one.node
    fixed = one.node < 0 or reserved or not one.demand.tried or bool(pod.gang) or one in ageing.singly
    return not fixed and pod.priority <= to.demand.pod.priority and _age(one) > _age(to)


def _nearest(board: Board, ask: Ask, yielding: Iterable[Ask], ageing: Ageing) -> Device | None:
    """The GPU that could hold all its partitions with the fewest holders; first where its node has room already."""
    leaving = Counter(id(device) for one in yielding for device, _ in one.taken)
    found: list[tuple[tuple[bool, int, int, int], Device]] = []
    able: dict[tuple[int, int, Layout], bool] = {}  # by pool, model and failed places: thousands of GPUs are alike
    for node in (node for group in ask.groups for node in board.groups[group].nodes):
        stock = ageing.stocks[node]
        if not _large_enough(ask, stock):
            continue
        lacks_room = not board.fits(ask, node)
        for device in board.devices[node]:
            if device.gpu < 0:
                continue
            gpu = stock.gpus[device.gpu]
            alike = (id(device.pool), id(gpu.model), gpu.failed)
            if alike not in able:
                able[alike] = holds_beside(ask, device, stock, (), board)
            if able[alike]:
                holders = len(gpu.staying) + len(device.parts) - leaving[id(device)]
                found.append(((lacks_room, holders, node, device.gpu), device))
    found.sort(key=lambda each: each[0])
    return next((device for _, device in found if ageing.singly.refusals(ask, (device.node,))[""]), None)


def _large_enough(ask: Ask, stock: NodeStock) -> bool:
    allocatable = stock.node.allocatable
    return ask.cpu <= allocatable.get("cpu", 0) and ask.memory <= allocatable.get("memory", 0)


def holds_beside(ask: Ask, device: Device, stock: NodeStock, staying: Sequence[PartitionView], board: Board) -> bool:
    """Whether the GPU could hold all partitions of the ask if of those in use only these stayed."""
    pool, gpu = device.pool, stock.gpus[device.gpu]
    if not all(resource in pool.serves for resource, _ in ask.demand.wants) or gpu.model is None:
        return False
    state = state_of(replace(gpu, staying=tuple(staying)), gpu.model)
    for resource, count in sorted(ask.demand.wants, key=lambda want: board.rank[want[0]]):
        for _ in range(count):
            fitting = pool.fit(state, resource)
            if fitting is None:
                return False
            state = fitting.after
    return True


def _reserve(board: Board, ask: Ask, device: Device, yielding: Sequence[Ask], singly: Singly) -> Reservation:
    moved = [one for one in yielding if any(at is device for at, _ in one.taken)]
    for one in moved:
        board.take_off(one)
    if not _place(board, ask, device.node, singly):
        board.reserve(ask, device)
    for one in moved:
        board.place(one)
    return Reservation(ask=ask, device=device)


def _place(board: Board, ask: Ask, node: int, singly: Singly) -> bool:
    return singly.place_on(ask, node, Reach.NEW) if ask in singly else board.place_on(ask, node)
