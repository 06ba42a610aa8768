"""Holds what is advertised now, and which Allocates are running: the one state that all sockets share.

Takes the config in force and the GPUs whose MPS daemon does not answer. Returns the list of each resource, numbered so
that a stream knows what it has sent, and for an Allocate its devices or the sentence that refuses it. Thread-safe.
Never does I/O, and never takes an id off its list just after an Allocate of it: a kubelet that has the answer and not
the device any more crashes (seen with 1.36).
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from nodeagent.handover.config import Device, DeviceKind, DeviceListStrategy, PluginConfig
from nodeagent.handover.files import Identity


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The whole list of one resource. `number` grows with each change of it."""

    number: int
    devices: tuple[tuple[str, bool], ...]  # (id, healthy), sorted

    def healthy(self) -> frozenset[str]:
        return frozenset(id_ for id_, healthy in self.devices if healthy)


@dataclass(frozen=True, slots=True)
class RefusedAllocate:
    """Why an Allocate gets no device; the kubelet shows the sentence to the pod's user, and never retries."""

    sentence: str
    by_request: bool = False
    """The request itself is invalid: no partition could satisfy it."""


ANSWER_SECONDS = 10.0  # within which a kubelet has taken the answer of an Allocate; milliseconds where it is not busy
NOTHING = Listing(number=0, devices=())


class DeviceLists:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._condition = threading.Condition()
        self._config = PluginConfig()
        self._by_id: dict[str, Device] = {}
        self._unready: frozenset[str] = frozenset()
        self._named: frozenset[str] | None = None
        self._doubted: frozenset[str] = frozenset()
        self._closed = False
        self._kubelet: Identity | None = None
        self._recorded: frozenset[str] = frozenset()
        self._listings: dict[str, Listing] = {}
        self._number = 0
        self._running: Counter[str] = Counter()
        self._handed_out: dict[tuple[str, str], float] = {}
        """When, by resource and id; of running Allocates and of those that were answered lately."""

    def replace(
        self,
        config: PluginConfig,
        *,
        unready: Collection[str] = (),
        named: Collection[str] | None = None,
        closed: bool = False,
    ) -> None:
        """Put a config in force: from here on withdrawn ids are refused and streams push the new lists.

        Listed as unhealthy are MPS slices of the GPUs that are `unready`, since a client without its daemon would run
        without limits; what is not `named` for the container runtime to resolve (None: it need not), since a container
        that got it could not start; and everything while it is `closed`.
        """
        with self._condition:
            self._config = config
            self._by_id = {device.id: device for device in config.devices}
            self._unready = frozenset(unready)
            self._named = None if named is None else frozenset(named)
            self._closed = closed
            self._renew_listings()

    def strategy(self) -> DeviceListStrategy:
        """How containers get the devices of the config in force."""
        with self._condition:
            return self._config.device_list_strategy

    def retain(self, resources: Collection[str]) -> None:
        """Continue to list these without devices, as earlier processes did: the kubelet never forgets a resource."""
        with self._condition:
            for resource in resources:
                self._listings.setdefault(resource, NOTHING)

    def resources(self) -> tuple[str, ...]:
        with self._condition:
            return tuple(sorted(self._listings))

    def occupied(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Those of which a process of an earlier holder is left."""
        with self._condition:
            return tuple(sorted(set(self._config.occupied).intersection(ids)))

    def set_doubted(self, ids: frozenset[str]) -> None:
        """These may be held by pods of which the kubelet has no record: listed as unhealthy."""
        with self._condition:
            if ids != self._doubted:
                self._doubted = ids
                self._renew_listings()

    def close(self) -> None:
        """While every Allocate is refused all devices are listed as unhealthy: further pods would only fail."""
        with self._condition:
            self._closed = True
            self._renew_listings()

    def set_kubelet(self, kubelet: Identity | None, recorded: frozenset[str]) -> None:
        """The kubelet that is registered with next. What it records is healthy, drained or not, until the agent knows
        that it has admitted the pods: it would refuse one whose container does not run just now."""
        with self._condition:
            if (kubelet, recorded) != (self._kubelet, self._recorded):
                self._kubelet, self._recorded = kubelet, recorded
                self._renew_listings()

    def doubted(self) -> tuple[Device, ...]:
        """Those of them that are advertised."""
        with self._condition:
            return tuple(device for device in self._config.healthy() if device.id in self._doubted)

    def listing(self, resource: str) -> Listing:
        with self._condition:
            return self._listings.get(resource, NOTHING)

    def device(self, device_id: str) -> Device | None:
        with self._condition:
            return self._by_id.get(device_id)

    def advertised(self, device_id: str) -> Device | None:
        with self._condition:
            return None if device_id in self._config.withdrawn else self._by_id.get(device_id)

    def next_listing(self, resource: str, after: int, over: Callable[[], bool]) -> Listing | None:
        """Wait for a listing with another number; None once `over` (call `wake` when that changes)."""
        with self._condition:
            self._condition.wait_for(lambda: over() or self._listings.get(resource, NOTHING).number != after)
            return None if over() else self._listings.get(resource, NOTHING)

    def wake(self) -> None:
        with self._condition:
            self._condition.notify_all()

    @contextmanager
    def allocating(self, resource: str, ids: Collection[str]) -> Iterator[tuple[Device, ...] | RefusedAllocate]:
        """Hold the ids as being allocated, unless they are refused."""
        with self._condition:
            refused = self._refusal(resource, ids)
            if refused is None:
                devices = tuple(sorted((self._by_id[id_] for id_ in ids), key=lambda device: device.sort_key))
                self._running.update(ids)
                self._handed_out.update({(resource, id_): self._clock() for id_ in ids})
        if refused is not None:
            yield refused
            return
        try:
            yield devices
        finally:
            with self._condition:
                self._running.subtract(ids)
                self._running += Counter()  # drops the zeros
                self._handed_out.update({(resource, id_): self._clock() for id_ in ids})
                self._condition.notify_all()

    def running(self) -> frozenset[str]:
        """Ids with an Allocate that is not answered yet."""
        with self._condition:
            return frozenset(self._running)

    def _renew_listings(self) -> None:
        fresh: dict[str, list[tuple[str, bool]]] = {resource: [] for resource in self._listings}
        for device in self._config.devices:
            fresh.setdefault(device.resource, [])
        admitted = self._config.kubelet == self._kubelet
        drained = frozenset(self._config.drained) - (frozenset() if admitted else self._recorded)
        for device in self._config.advertised():
            without_daemon = device.kind is DeviceKind.MPS and device.gpu in self._unready
            resolves = self._named is None or device.id in self._named
            healthy = device.id not in self._doubted.union(self._config.unhealthy, drained)
            healthy = healthy and not (without_daemon or self._closed) and resolves
            fresh[device.resource].append((device.id, healthy))
        for resource, id_ in self._in_answers() - {(d.resource, d.id) for d in self._config.advertised()}:
            fresh.setdefault(resource, []).append((id_, False))
        for resource, devices in sorted(fresh.items()):
            known = self._listings.get(resource)
            if known is None or known.devices != tuple(sorted(devices)):
                self._number += 1
                self._listings[resource] = Listing(number=self._number, devices=tuple(sorted(devices)))
        self._condition.notify_all()

    def _in_answers(self) -> set[tuple[str, str]]:
        oldest = self._clock() - ANSWER_SECONDS
        for key, at in list(self._handed_out.items()):
            if at <= oldest and key[1] not in self._running:
                del self._handed_out[key]
        return set(self._handed_out)

    def _refusal(self, resource: str, ids: Collection[str]) -> RefusedAllocate | None:
        for id_ in sorted(ids):
            if why := self._unusable(resource, id_):
                return RefusedAllocate(why)
        why = _impossible(resource, [self._by_id[id_] for id_ in ids])
        return RefusedAllocate(why, by_request=True) if why else None

    def _unusable(self, resource: str, id_: str) -> str:
        device = self._by_id.get(id_)
        what = f"{id_} ({resource})"
        if id_ in self._config.withdrawn:
            why = f"{what} is being withdrawn: gpuplan re-partitions this GPU"
        elif device is None or device.resource != resource:
            why = f"{id_} is not advertised as {resource} on this node any more: the GPU was re-partitioned"
        elif id_ in self._doubted:
            why = f"{what} may be in use by a pod that the kubelet has forgotten, until gpuplan has seen it free"
        elif id_ in self._config.unhealthy and id_ not in self._config.occupied:
            # The container of an occupied one waits instead, since a refusal would be permanent.
            why = (
                f"{what} cannot be used: its GPU is lost or broken, or the node was restarted and the device was not "
                "observed since; see the status of this node's GPUPartitionPlan"
            )
        else:
            return ""
        return f"{why}. A controller's pod is created again by itself, a bare pod must be created again."


def _impossible(resource: str, devices: Collection[Device]) -> str:
    """Why no container can be given so many of these."""
    gpus = len({device.gpu for device in devices})
    slices = any(device.kind is DeviceKind.MPS for device in devices)
    if slices and gpus > 1 and all(device.mergeable for device in devices):
        return (
            f"a container's share is on one GPU, and no single GPU of this node has {len(devices)} of {resource} free: "
            "request less, or one slice of that size by its own resource, nvidia.com/gpu-<N>gb."
        )
    if slices and len(devices) > 1 and not all(device.mergeable for device in devices):
        return (
            f"a container can use one MPS slice, this one requests {len(devices)} of {resource}: "
            "request one larger slice, or spread the work over several containers."
        )
    return ""
