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
    ports: Counter[HostPort] = field(default_factory=Counter)

    @classmethod
    def of(cls, pods: Iterable[PodView]) -> "Usage":
        """What these pods request together: all that are bound to one node and not finished."""
        pods = list(pods)
        ports = Counter(port for pod in pods for port in pod.host_ports)
        return cls(held=Capacity.total(needs_of(pod.requests) for pod in pods), ports=ports)

    def add(self, pod: PodView) -> None:
        self.held += needs_of(pod.requests)
        if pod.host_ports:
            self.ports.update(pod.host_ports)

    def remove(self, pod: PodView) -> None:
        self.held -= needs_of(pod.requests)
        if pod.host_ports:
            self.ports -= Counter(pod.host_ports)

    def copy(self) -> "Usage":
        return Usage(held=self.held, ports=Counter(self.ports))

    def conflicts(self, requested: Iterable[HostPort]) -> bool:
        return any(True for _ in self.conflicting(requested))

    def conflicting(self, requested: Iterable[HostPort]) -> Iterator[HostPort]:
        """Those that are taken: by protocol, port and address, where 0.0.0.0 means every address."""
        # A pod may have tens of thousands, so they are not compared one with the other.
        addresses: dict[tuple[str, int], set[str]] = {}
        for mine in self.ports:
            addresses.setdefault((mine.protocol, mine.port), set()).add(mine.ip)
        for port in requested:
            taken = addresses.get((port.protocol, port.port), set())
            if taken and (port.ip in taken or ANY_ADDRESS in taken or port.ip == ANY_ADDRESS):
                yield port
