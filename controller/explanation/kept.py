"""What is said about a reserved GPU: to the pod that it is reserved for, and to those that it is kept from.

Takes the reservation after the last ask was placed, returns answers and causes. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from controller.explanation.causes import Cause
from controller.explanation.phrases import Answer, cpus_and_memory, gpus_on, listed, spelled
from controller.model.demand import Wants
from controller.model.reasons import UnplacedReason
from controller.planner.board.assignment import Ask
from controller.planner.board.board import Board
from controller.planner.board.devices import Device
from controller.planner.inventory.stock import Closed, NodeStock
from controller.planner.placement.ageing import holds_beside
from controller.planner.search import Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The reservation of a pass in words."""

    ask: Ask
    device: Device
    cause: Cause
    to_owner: Answer

    @classmethod
    def of(cls, finished: Finished) -> Kept | None:
        if finished.reservation is None:
            return None
        ask, device = finished.reservation.ask, finished.reservation.device
        stock = finished.stocks[device.node]
        index = stock.gpus[device.gpu].view.index
        message = (
            f"{gpus_on([(stock.name, index)])} is reserved for this pod, since it has waited longest. "
            "The pod starts when enough is released there; or add a GPU node."
        )
        until = _until(ask, device, finished.board, stock, finished.all_pods)
        detail = f"There is room for {spelled(ask.demand.wants)} once {until}." if until else ""
        return cls(
            ask=ask,
            device=device,
            cause=Cause(device.node, stock.name, index, Closed.RESERVED),
            to_owner=Answer(UnplacedReason.WAITS_FOR_RELEASE, message, detail),
        )

    def causes(self, wants: Wants, nodes: Collection[int]) -> list[Cause]:
        """Why these partitions are not planned on the GPU."""
        serves = any(name in self.device.pool.serves for name, _ in wants)
        return [self.cause] if serves and self.device.node in nodes else []


def _until(ask: Ask, device: Device, board: Board, stock: NodeStock, asks: Iterable[Ask]) -> str:
    room = board.rooms[device.node]
    short = room.cpu < 0 or room.memory < 0 or room.pods < 0
    requested = f"{cpus_and_memory(ask.cpu, ask.memory)} are free on node {stock.name}" if short else ""
    return " and ".join(filter(None, (_holders(ask, device, board, stock, asks), requested)))


def _holders(ask: Ask, device: Device, board: Board, stock: NodeStock, asks: Iterable[Ask]) -> str:
    staying = stock.gpus[device.gpu].staying
    coming = {one.demand.pod.title for one in asks if any(at is device for at, _ in one.taken)}
    names = sorted({part.pod or "a pod that the status does not name" for part in staying} | coming)
    if len(names) < 2:
        return f"{names[0]} has finished" if names else ""
    # Where each one alone leaves no room, all of them have to finish.
    every = not coming and not any(holds_beside(ask, device, stock, [part], board) for part in staying)
    return f"{listed(names)} have finished" if every else f"enough of {listed(names)} have finished"
