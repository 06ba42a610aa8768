"""Reserves one GPU for the pod that has waited longest, so that smaller pods cannot starve it.

Takes the board after a level was placed. Of the level's aged pods without a place, the oldest gets the GPU with the
fewest holders of all that could hold it, on a node where it fits once these have gone: younger pods of this level are
taken off that GPU, and where the aged pod fits then, it is placed. Otherwise the GPU, and the pod's CPU and memory on
its node, are kept from every pod that is placed later in the pass. Nothing is remembered here: no new pod comes to that
GPU, so that its holders only become fewer and the next pass finds it again; the snapshot says whose turn is over. Never
moves a pod that is bound or has a reservation, or one of a higher priority. Gangs and pods whose partitions need
several GPUs get no reservation.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from controller.model.capacity import Capacity
from controller.model.demand import demand_of
from controller.model.results import ReservedFor
from controller.model.views import PartitionView, PodView
from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board
from controller.planner.board.devices import Device, Reach
from controller.planner.board.setup import state_of
from controller.planner.inventory.stock import NodeStock
from controller.planner.placement.constrained import ConstrainedPlacement
from partitioning.layouts import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReservation:
    """The GPU that is kept for an aged pod, or on which the pod was placed because others yielded."""

    assignment: Assignment
    device: Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Ageing:
    """What reserving needs to know of the pass."""

    aged: Collection[str]
    """Uids of pods that have waited too long."""
    resting: Collection[str]
    """Those of them for which no GPU is reserved now."""
    begun: ReservedFor | None
    """A reservation that stays on its GPU, since holders have left it already."""
    stocks: Sequence[NodeStock]
    bound: Mapping[str, PodView]
    """Those that may hold a partition, by title."""
    reservations: Mapping[str, int]
    """Node numbers by pod uid."""
    constrained: ConstrainedPlacement

    def keeps(self, one: Assignment) -> bool:
        """The pod is placed where it has a reservation."""
        return one.placed and self.reservations.get(one.pod.uid) == one.node


def reserve_gpu(board: Board, assignments: Sequence[Assignment], ageing: Ageing) -> GpuReservation | None:
    """`assignments` are those of one level, after they were placed. At most one of them is helped, placed or not."""
    waiting = [one for one in assignments if not one.placed and _may_reserve(one, ageing)]
    in_vain: set[Hashable] = set()
    for assignment in sorted(waiting, key=_age):
        alike = ageing.constrained.alike(assignment)
        if alike in in_vain:
            continue
        yielding = [one for one in assignments if _yields(one, assignment, ageing)]
        device = _nearest(board, assignment, yielding, ageing)
        if device is not None:
            return _reserve(board, assignment, device, yielding)
        in_vain.add(alike)
    return None


def could_reserve(board: Board, assignment: Assignment, ageing: Ageing) -> bool:
    """Whether some GPU could be reserved for an aged pod, if all younger pods yielded."""
    return _may_reserve(assignment, ageing) and _nearest(board, assignment, (), ageing) is not None


def _may_reserve(assignment: Assignment, ageing: Ageing) -> bool:
    uid = assignment.pod.uid
    return assignment.tried and uid in ageing.aged and uid not in ageing.resting and not assignment.pod.gang


def _age(assignment: Assignment) -> tuple[int, tuple[str, str]]:
    return (assignment.pod.created, assignment.pod.key)


def _yields(one: Assignment, to: Assignment, ageing: Ageing) -> bool:
    """Whether a pod of the same level gives up a place that this pass has given it."""
    pod = one.pod
    fixed = not one.placed or ageing.keeps(one) or not one.tried or bool(pod.gang) or one.constrained
    return not fixed and pod.priority <= to.pod.priority and _age(one) > _age(to)


def _nearest(board: Board, assignment: Assignment, yielding: Sequence[Assignment], ageing: Ageing) -> Device | None:
    """The GPU that could hold all its partitions with the fewest holders; nodes that have the capacity come first.

    One that holders have left for this pod's sake comes before all: two GPUs would empty in turns, and neither whole.
    """
    leaving = Counter(id(device) for one in yielding for device, _ in one.taken)
    found: list[tuple[tuple[bool, bool, int, int, int], Device]] = []
    begun = (ageing.begun.uid, ageing.begun.node, ageing.begun.gpu) if ageing.begun is not None else None
    able: dict[tuple[int, int, Layout], bool] = {}  # by pool, model and failed places: thousands of GPUs are alike
    for node in (node for group in assignment.groups for node in board.groups[group].nodes):
        stock = ageing.stocks[node]
        if not stock.is_large_enough(assignment.needs):
            continue
        lacks_capacity = not board.fits(assignment, node)
        for device in board.devices[node]:
            if device.gpu < 0:
                continue
            gpu = stock.gpus[device.gpu]
            alike = (id(device.pool), id(gpu.model), gpu.failed)
            if alike not in able:
                able[alike] = could_hold_with(assignment, device, stock, (), board)
            if able[alike]:
                holders = len(gpu.staying) + len(device.parts) - leaving[id(device)]
                kept = (assignment.pod.uid, stock.name, gpu.view.index) == begun
                found.append(((not kept, lacks_capacity, holders, node, device.gpu), device))
    found.sort(key=lambda each: each[0])
    return next(
        (
            device
            for _, device in found
            if _fits_once_released(board, assignment, device, yielding, ageing)
            and ageing.constrained.refusals(assignment, (device.node,))[""]
        ),
        None,
    )


def _fits_once_released(
    board: Board, assignment: Assignment, device: Device, yielding: Iterable[Assignment], ageing: Ageing
) -> bool:
    """Whether the node has room for the pod once the GPU's holders, and the pods that yield, have gone.

    What others hold there stays for as long as is known, so that a reservation would close the GPU in vain.
    """
    demand, stock, node = assignment.demand, ageing.stocks[device.node], board.nodes[device.node]
    titles = {part.pod for part in stock.gpus[device.gpu].staying}
    holders = [pod for title in sorted(titles) if (pod := ageing.bound.get(title)) is not None]
    leaving = [one.demand for one in yielding if one.node == device.node]
    free = node.free + Capacity.total(each.holds for each in (*map(demand_of, holders), *leaving))
    if not free.fits(demand.needs) or node.lacks(demand):
        return False
    if not demand.host_ports:
        return True
    usage = node.usage.copy()
    for pod in (*holders, *(each.pod for each in leaving)):
        usage.remove(pod)
    return not usage.conflicts(demand.host_ports)


def could_hold_with(
    assignment: Assignment, device: Device, stock: NodeStock, staying: Sequence[PartitionView], board: Board
) -> bool:
    """Whether the GPU could hold all partitions of the pod if of those in use only these stayed."""
    pool, gpu = device.pool, stock.gpus[device.gpu]
    if not all(resource in pool.serves for resource, _ in assignment.wants) or gpu.model is None:
        return False
    state = state_of(replace(gpu, staying=tuple(staying)), gpu.model)
    for resource, count in sorted(assignment.wants, key=lambda want: board.rank[want[0]]):
        for _ in range(count):
            fitting = pool.fit(state, resource)
            if fitting is None:
                return False
            state = fitting.after
    return True


def _reserve(
    board: Board,
    assignment: Assignment,
    device: Device,
    yielding: Sequence[Assignment],
) -> GpuReservation:
    moved = [one for one in yielding if any(at is device for at, _ in one.taken)]
    for one in moved:
        board.take_off(one)
    if not board.place_on(assignment, device.node, reach=Reach.NEW):
        board.reserve(assignment, device)
    for one in moved:
        board.place(one)
    return GpuReservation(assignment=assignment, device=device)
