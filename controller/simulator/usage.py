"""What pods hold of one node: its capacity and host ports.

Takes pods that are bound (or nominated) to the node and returns what is to be compared with the node's own capacity.
Changed as pods come and go; never reads an API.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from controller.model.capacity import NOTHING, Capacity, needs_of
from controller.model.scheduling import HostPort
from controller.model.views import PodView

ANY_ADDRESS = "0.0.0.0"


@dataclass(slots=True, kw_only=True)
class Usage:
    """Terminating pods count until they are gone; finished ones must not be added."""

    held: Capacity = NOTHING
    ports: Counter[tuple[str, int, str]] = field(default_factory=Counter)
    """How often each protocol, port and address is taken, and with '' at any address."""

    @classmethod
    def of(cls, pods: Iterable[PodView]) -> "Usage":
        """What these pods request together: all that are bound to one node and not finished."""
        pods = list(pods)
        ports = Counter(taken for pod in pods for taken in _taken_by(pod))
        return cls(held=Capacity.total(needs_of(pod.requests) for pod in pods), ports=ports)

    def add(self, pod: PodView) -> None:
        self.held += needs_of(pod.requests)
        self.ports.update(_taken_by(pod))

    def remove(self, pod: PodView) -> None:
        self.held -= needs_of(pod.requests)
        self.ports.subtract(_taken_by(pod))

    def copy(self) -> "Usage":
        return Usage(held=self.held, ports=Counter(self.ports))

    def conflicting(self, requested: Iterable[HostPort]) -> Iterator[HostPort]:
        """Those that are taken: by protocol, port and address, where 0.0.0.0 means every address."""
        # A pod may have tens of thousands, and is held against every node: no other one is visited.
        for port in requested:
            in_the_way = ("",) if port.ip == ANY_ADDRESS else (port.ip, ANY_ADDRESS)
            if any(self.ports[port.protocol, port.port, address] > 0 for address in in_the_way):
                yield port


def _taken_by(pod: PodView) -> list[tuple[str, int, str]]:
    return [(port.protocol, port.port, address) for port in pod.host_ports for address in (port.ip, "")]
