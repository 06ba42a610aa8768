"""What pods request on one node: resources, pod count and host ports.

Takes pods that are bound (or nominated) to the node and returns sums to compare with its allocatable. A Usage is the
only mutable thing of the simulator; it holds amounts in the units of `PodView.requests` and never reads an API.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from controller.model.views import HostPort, PodView

ANY_ADDRESS = "0.0.0.0"


@dataclass(slots=True, kw_only=True)
class Usage:
    """Terminating pods count until they are gone; finished ones must not be added."""

    requested: dict[str, int] = field(default_factory=dict)
    pods: int = 0
    ports: Counter[HostPort] = field(default_factory=Counter)

    @classmethod
    def of(cls, pods: Iterable[PodView]) -> Usage:
        """What these pods request together: all that are bound to one node and not finished."""
        usage = cls()
        usage._count(pods, 1)
        return usage

    def add(self, pod: PodView) -> None:
        self._count((pod,), 1)

    def remove(self, pod: PodView) -> None:
        self._count((pod,), -1)

    def _count(self, pods: Iterable[PodView], sign: int) -> None:
        requested = self.requested
        for pod in pods:
            self.pods += sign
            for resource, amount in pod.requests:
                requested[resource] = requested.get(resource, 0) + sign * amount
            for port in pod.host_ports:
                self.ports[port] += sign
                if not self.ports[port]:
                    del self.ports[port]

    def copy(self) -> Usage:
        return Usage(requested=dict(self.requested), pods=self.pods, ports=Counter(self.ports))

    def with_nominated(self, pod: PodView, nominated: Iterable[PodView]) -> Usage:
        """This usage as the scheduler sees it for `pod`: pods nominated here count unless their priority is lower."""
        others = [other for other in nominated if other.priority >= pod.priority and other.uid != pod.uid]
        if not others:
            return self
        seen = self.copy()
        for other in others:
            seen.add(other)
        return seen

    def conflicts(self, wanted: Iterable[HostPort]) -> bool:
        """A host port is taken by protocol, port and address, where 0.0.0.0 means every address."""
        return any(
            mine.protocol == port.protocol
            and mine.port == port.port
            and (mine.ip == port.ip or ANY_ADDRESS in (mine.ip, port.ip))
            for port in wanted
            for mine in self.ports
        )
