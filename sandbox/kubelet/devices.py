"""Keeps the device table of one kubelet: which plugin advertises which devices, and which container holds which.

Takes device lists of plugins, the end of their streams, what admission takes, and which pods are active; returns
capacity for the status of the node, ids for pod-resources, and ids that a container may get. Thread-safe and without
I/O; the monotonic time is passed as `now`. The rules are those of the real device manager, odd ones included: a whole
list replaces a list, counts go by number, the devices of a stopped endpoint stay counted for a grace period, and
devices of ended pods are freed only by the next List or admission.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random

from kube.kubelet_api import deviceplugin_pb2 as plugin_api
from sandbox.kubelet.selection import Refusal, Wanted, choose


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    device_id: str
    healthy: bool = True


@dataclass(slots=True)
class DeviceList:
    """The list in the newest message of any stream. An id that came twice with both healths is in both sets."""

    healthy: set[str] = field(default_factory=set)
    unhealthy: set[str] = field(default_factory=set)
    stopped_at: float | None = None


@dataclass(frozen=True, slots=True)
class Holder:
    pod_uid: str
    container: str
    resource: str


@dataclass(frozen=True, slots=True)
class Holding:
    device_ids: frozenset[str]
    answer: plugin_api.ContainerAllocateResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    removed: tuple[str, ...]
    """Resources whose grace period just ended: they are gone here, and stay in the node's status as 0."""


class DeviceTable:
    def __init__(self, *, grace_seconds: float = 300.0, random: Random | None = None) -> None:
        self._grace_seconds = grace_seconds
        self._random = random or Random(0)
        self._lock = threading.RLock()
        self._lists: dict[str, DeviceList] = {}
        self._holdings: dict[Holder, Holding] = {}
        self._taken: dict[str, set[str]] = {}

    def restore(self, holdings: Mapping[Holder, Holding], resources: Iterable[str], now: float) -> None:
        """As after a kubelet start: the checkpoint's resources count 0 until their plugin is back."""
        with self._lock:
            self._holdings = dict(holdings)
            self._lists = {resource: DeviceList(stopped_at=now) for resource in resources}
            self._count_taken()

    def connected(self, resource: str) -> None:
        """A plugin registered. Its first list comes later: until then whatever was listed stays."""
        with self._lock:
            if resource in self._lists:
                self._lists[resource].stopped_at = None

    def set_devices(self, resource: str, devices: Iterable[Device]) -> None:
        with self._lock:
            old = self._lists.get(resource)
            new = DeviceList(stopped_at=old.stopped_at if old else None)
            for device in devices:
                (new.healthy if device.healthy else new.unhealthy).add(device.device_id)
            self._lists[resource] = new

    def stopped(self, resource: str, now: float) -> None:
        """The resource's stream ended: everything turns unhealthy, and the grace period starts."""
        with self._lock:
            entry = self._lists.setdefault(resource, DeviceList())
            entry.unhealthy |= entry.healthy
            entry.healthy = set()
            entry.stopped_at = now

    def knows(self, resource: str) -> bool:
        with self._lock:
            return resource in self._lists or bool(self._taken.get(resource))

    def counts(self, now: float) -> Counts:
        """Capacity is healthy plus unhealthy, by number. Resources past their grace period are dropped here."""
        with self._lock:
            removed = tuple(
                resource
                for resource, entry in sorted(self._lists.items())
                if entry.stopped_at is not None and now - entry.stopped_at > self._grace_seconds
            )
            for resource in removed:
                del self._lists[resource]
            entries = sorted(self._lists.items())
            return Counts(
                capacity={resource: len(entry.healthy) + len(entry.unhealthy) for resource, entry in entries},
                allocatable={resource: len(entry.healthy) for resource, entry in entries},
                removed=removed,
            )

    def healthy_ids(self) -> dict[str, tuple[str, ...]]:
        with self._lock:
            return {resource: tuple(sorted(entry.healthy)) for resource, entry in sorted(self._lists.items())}

    def health(self, resource: str, device_id: str) -> bool | None:
        """None where the newest list does not name the id."""
        with self._lock:
            entry = self._lists.get(resource)
            if entry is None or device_id not in entry.healthy | entry.unhealthy:
                return None
            return device_id in entry.healthy

    def free_inactive(self, active_uids: Callable[[], frozenset[str]]) -> None:
        """Drop what pods hold that are not active any more. Only List and admission cause this."""
        with self._lock:
            active = active_uids()  # now: a pod that is admitted meanwhile would lose what it has just got
            gone = [holder for holder in self._holdings if holder.pod_uid not in active]
            for holder in gone:
                del self._holdings[holder]
            if gone:
                self._count_taken()

    def holdings(self) -> dict[Holder, Holding]:
        with self._lock:
            return dict(self._holdings)

    def holdings_of(self, pod_uid: str, container: str) -> dict[str, Holding]:
        with self._lock:
            return {
                holder.resource: holding
                for holder, holding in self._holdings.items()
                if (holder.pod_uid, holder.container) == (pod_uid, container)
            }

    def taken_counts(self) -> dict[str, int]:
        with self._lock:
            return {resource: len(ids) for resource, ids in sorted(self._taken.items()) if ids}

    def needed(
        self, holder: Holder, required: int, reusable: frozenset[str], *, already_running: bool
    ) -> Wanted | Refusal | None:
        """What an admission must still get for this container, None where it has all or runs, or why it cannot."""
        with self._lock:
            holding = self._holdings.get(holder)
            held = holding.device_ids if holding else frozenset()
            missing = required - len(held)
            if holding and missing:
                return Refusal(
                    f'pod "{holder.pod_uid}" container "{holder.container}" changed request for resource '
                    f'"{holder.resource}" from {len(held)} to {required}'
                )
            if already_running:
                return None
            entry = self._lists.get(holder.resource)
            if entry is None:
                return Refusal(f"cannot allocate unregistered device {holder.resource}")
            if not entry.healthy:
                return Refusal(f"no healthy devices present; cannot allocate unhealthy devices {holder.resource}")
            if not held <= entry.healthy:
                return Refusal(
                    "previously allocated devices are no longer healthy; "
                    f"cannot allocate unhealthy devices {holder.resource}"
                )
            if missing == 0:
                return None
            free = frozenset(entry.healthy - self._taken.get(holder.resource, set()))
            return choose(holder.resource, required, reusable, free, self._random)

    def take(self, wanted: Wanted, preferred: Iterable[str]) -> frozenset[str]:
        """Settle on ids, the plugin's preference first, and mark them taken before its Allocate is called."""
        with self._lock:
            ids = wanted.settle(preferred, self._random)
            self._taken.setdefault(wanted.resource, set()).update(ids)
            return ids

    def hold(self, holder: Holder, holding: Holding) -> None:
        with self._lock:
            self._holdings[holder] = holding

    def give_back(self) -> None:
        """After a failed Allocate: taken is again what containers hold."""
        with self._lock:
            self._count_taken()

    def _count_taken(self) -> None:
        self._taken = {}
        for holder, holding in self._holdings.items():
            self._taken.setdefault(holder.resource, set()).update(holding.device_ids)
