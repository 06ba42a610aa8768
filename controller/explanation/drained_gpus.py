"""Explains drained GPUs, both to the pods that they are drained for and to those that they are kept from.

Takes the drains after the last pod was placed, returns answers and causes. Never begins or ends one.
"""

from collections.abc import Collection, Iterable

from controller.explanation.causes import Cause
from controller.explanation.phrases import UNNAMED_POD, Answer, cpus_and_memory, gpus_on, listed, spelled
from controller.model.demand import Wants
from controller.model.reasons import UnplacedReason
from controller.planner.board.board import Board
from controller.planner.draining.drains import GpuDrain
from controller.planner.inventory.stock import Ineligible


def to_owner(drain: GpuDrain, board: Board) -> Answer:
    """To the pod for which the GPU is drained."""
    where, needs = gpus_on([(drain.stock.name, drain.gpu.view.index)]), drain.assignment.needs
    message = (
        f"{where} is drained for this pod, since it has waited long: no other pod gets what is in its way. "
        "The pod starts when those that hold one have finished; or add a GPU node."
    )
    names = sorted({part.pod or UNNAMED_POD for part in drain.held})
    free = board.nodes[drain.node].free
    until = [f"{listed(names)} {'has' if len(names) < 2 else 'have'} finished"] if names else []
    if free.cpu_milli < 0 or free.memory_bytes < 0 or free.pods < 0:
        until.append(f"{cpus_and_memory(needs.cpu_milli, needs.memory_bytes)} are free on node {drain.stock.name}")
    detail = f"There is room for {spelled(drain.assignment.wants)} once {' and '.join(until)}." if until else ""
    return Answer(UnplacedReason.WAITS_FOR_RELEASE, message, detail)


def causes_of_drains(drains: Iterable[GpuDrain], wants: Wants, nodes: Collection[int]) -> list[Cause]:
    """Why these partitions are not planned on drained GPUs."""
    return [
        Cause(one.node, one.stock.name, one.gpu.view.index, Ineligible.DRAINED)
        for one in drains
        if one.node in nodes and one.device is not None and any(name in one.device.pool.serves for name, _ in wants)
    ]
