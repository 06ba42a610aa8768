"""The faults of the crash test, and where each can strike.

A fault happens at one place of a run, the second kill of `TWICE` at a later one. What it does to the node is
`CrashWorld`'s; here is only when.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tests.crashes.points import Answer, Kind, Point
from tests.nodeagent.watched import Killed


class Fault(StrEnum):
    KILL = "kill"
    OTHERS = "kill of the others"
    TWICE = "two kills"
    REBOOT = "reboot"
    KUBELET = "kubelet restarts"
    FULL = "full disk"
    TIMEOUT = "time-out"
    LOST = "answer lost"
    POWER = "power cut"


OF_CALLS = {Fault.TIMEOUT: Answer.REFUSED, Fault.LOST: Answer.LOST}
PROCESSES_ONLY = frozenset(Fault) - {Fault.REBOOT, Fault.POWER, Fault.KUBELET, Fault.OTHERS}
"""Of stories whose world has no kubelet, and no boot, of its own."""


class Rebooted(Killed):
    """All processes of the node end."""


class PowerCut(Rebooted):
    """And what was not synced is lost."""


class Node(Protocol):
    """What faults do to the rest of the node."""

    def others_die(self, process: str) -> None: ...

    def kubelet_restarts(self) -> None: ...

    def disk_fills(self) -> None: ...


def applies(fault: Fault, point: Point) -> bool:
    """A call has an answer that can be lost; a file has none."""
    return fault not in OF_CALLS or point.kind in (Kind.DRIVER, Kind.API)


@dataclass(frozen=True, slots=True)
class OneFault:
    """`fault` strikes at the place with number `at`, and that of `TWICE` again so many places later."""

    node: Node
    fault: Fault
    at: int
    later: int = 1

    def answer(self, point: Point) -> Answer:
        return OF_CALLS.get(self.fault, Answer.OWN) if point.number == self.at else Answer.OWN

    def happen(self, point: Point) -> None:
        again = self.fault is Fault.TWICE and point.number == self.at + self.later
        if point.number != self.at and not again:
            return
        match self.fault:
            case Fault.KILL | Fault.TWICE:
                raise Killed(point.what)
            case Fault.REBOOT:
                raise Rebooted(point.what)
            case Fault.POWER:
                raise PowerCut(point.what)
            case Fault.OTHERS:
                self.node.others_die(point.process)
            case Fault.KUBELET:
                self.node.kubelet_restarts()
            case Fault.FULL:
                self.node.disk_fills()
