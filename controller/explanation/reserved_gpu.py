"""Explains a reserved GPU, both to the pod that it is reserved for and to those that it is kept from.

Takes the reservation after the last pod was placed, returns an answer and causes. Never reserves or releases anything.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from controller.explanation.causes import Cause
from controller.explanation.phrases import UNNAMED_POD, Answer, cpus_and_memory, gpus_on, listed, spelled
from controller.model.demand import Wants
from controller.model.reasons import UnplacedReason
from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board
from controller.planner.board.devices import Device
from controller.planner.inventory.stock import Ineligible, NodeStock
from controller.planner.placement.ageing import could_hold_with
from controller.planner.search import Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedGpu:
    """The reservation of a pass in words."""

    assignment: Assignment
    device: Device
    cause: Cause
    to_owner: Answer

    @classmethod
    def of(cls, finished: Finished) -> "ReservedGpu | None":
        if finished.reservation is None:
            return None
        assignment, device = finished.reservation.assignment, finished.reservation.device
        stock = finished.stocks[device.node]
        index = stock.gpus[device.gpu].view.index
        message = (
            f"{gpus_on([(stock.name, index)])} is reserved for this pod, since it has waited longest. "
            "The pod starts when enough is released there; or add a GPU node."
        )
        until = _until(assignment, device, finished.board, stock, finished.assignments)
        detail = f"There is room for {spelled(assignment.wants)} once {until}." if until else ""
        return cls(
            assignment=assignment,
            device=device,
            cause=Cause(device.node, stock.name, index, Ineligible.RESERVED),
            to_owner=Answer(UnplacedReason.WAITS_FOR_RELEASE, message, detail),
        )

    def causes(self, wants: Wants, nodes: Collection[int]) -> list[Cause]:
        """Why these partitions are not planned on the GPU."""
        serves = any(name in self.device.pool.serves for name, _ in wants)
        return [self.cause] if serves and self.device.node in nodes else []


def _until(
    assignment: Assignment, device: Device, board: Board, stock: NodeStock, assignments: Iterable[Assignment]
) -> str:
    free = board.nodes[device.node].free
    short = free.cpu_milli < 0 or free.memory_bytes < 0 or free.pods < 0
    requested = (
        f"{cpus_and_memory(assignment.needs.cpu_milli, assignment.needs.memory_bytes)} are free on node {stock.name}"
        if short
        else ""
    )
    return " and ".join(filter(None, (_holders(assignment, device, board, stock, assignments), requested)))


def _holders(
    assignment: Assignment, device: Device, board: Board, stock: NodeStock, assignments: Iterable[Assignment]
) -> str:
    staying = stock.gpus[device.gpu].staying
    coming = {one.pod.title for one in assignments if any(at is device for at, _ in one.taken)}
    names = sorted({part.pod or UNNAMED_POD for part in staying} | coming)
    if len(names) < 2:
        return f"{names[0]} has finished" if names else ""
    # Where each one alone leaves no room, all of them have to finish.
    every = not coming and not any(could_hold_with(assignment, device, stock, [part], board) for part in staying)
    return f"{listed(names)} have finished" if every else f"enough of {listed(names)} have finished"
