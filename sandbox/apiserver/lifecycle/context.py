"""What every write needs: the cluster, what is addressed, and the options of the request.

`Cluster` is the server's whole state. Belongs to the event loop's thread; nothing here blocks.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kube.timestamps import api_time
from sandbox.apiserver.errors import not_found
from sandbox.apiserver.resources.builtin import BUILTIN
from sandbox.apiserver.resources.resource import Registry, Resource
from sandbox.apiserver.storage.store import Entry, Key, Store

Clock = Callable[[], datetime]
NAMESPACES = ("", "namespaces")


def wall_clock() -> datetime:
    return datetime.now(UTC)


class Cluster:
    """Objects, served resources and the clock."""

    def __init__(self, *, watch_window: int, limits_agents: bool = False, clock: Clock = wall_clock) -> None:
        """`limits_agents`: as if the admission policy about gpuplan's agent and its Node were installed."""
        self.clock, self.limits_agents = clock, limits_agents
        self.registry = Registry(BUILTIN)
        self.store = Store(first_version=int(clock().timestamp() * 1000), window=watch_window)

    def now(self) -> str:
        return api_time(self.clock())

    def resource(self, group: str, version: str, plural: str) -> Resource:
        """A resource that is known to exist."""
        found = self.registry.find(group, version, plural)
        if found is None:
            raise LookupError(f"{group}/{version} {plural} is not served")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a request addresses."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        return (self.namespace if self.resource.namespaced else "", self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The options of a write; `warnings` collects what the answer's Warning headers say."""

    manager: str
    dry_run: bool = False
    field_validation: str = "Warn"
    force: bool = False
    warnings: list[str] = field(default_factory=list)


def entry_of(cluster: Cluster, target: Target) -> Entry:
    """The stored entry, or 404."""
    entry = cluster.store.collection(target.resource.collection).items.get(target.key)
    if entry is None:
        raise not_found(target.resource, target.name)
    return entry
