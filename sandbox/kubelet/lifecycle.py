"""Decides about admitted pods: which containers start or stop now, what the phase is, and which pods are active.

`PodRun` is one pod's life, pure: times are arguments, nothing is called. Containers that ended are started again only
as often as the pod's annotation says, whatever the restart policy. `PodBook` holds the pods of one kubelet,
thread-safe: a pod whose phase was patched to an end counts as inactive while its container runs, and a pod that
vanished from the API is not known any more.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sandbox.kubelet.pods import Container, Pod, Role


class Step(StrEnum):
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(slots=True, kw_only=True)
class ContainerRun:
    spec: Container
    step: Step = Step.WAITING
    reason: str = ""
    """Why it waits, or how it ended; empty for the ordinary reason of its step."""
    message: str = ""
    container_id: str = ""
    started_at: float | None = None
    finished_at: float | None = None
    exit_code: int = 0
    restarts: int = 0
    failed_starts: int = 0
    held_back: bool = False
    """A start failed or a restart is due later: a timer starts it again."""

    @property
    def succeeded(self) -> bool:
        return self.step is Step.ENDED and self.exit_code == 0


@dataclass(slots=True, kw_only=True)
class PodRun:
    pod: Pod
    admitted_at: float
    """Epoch seconds; the pod's startTime."""
    containers: dict[str, ContainerRun] = field(default_factory=dict)
    device_health: dict[tuple[str, str], dict[str, bool]] = field(default_factory=dict)
    """By container and resource, then id: remembered, so that an id that left the plugin's list keeps its health."""
    stopping: bool = False
    terminated: bool = False
    transitions: dict[str, tuple[bool, float]] = field(default_factory=dict)
    """By condition: its value, and since when."""

    def __post_init__(self) -> None:
        if not self.containers:
            self.containers = {spec.name: ContainerRun(spec=spec) for spec in self.pod.containers}

    def to_start(self) -> tuple[str, ...]:
        """Init containers one after the other, a sidecar once it runs lets the next one go, then all others at once."""
        if self.stopping or self.terminated:
            return ()
        for name, run in self.containers.items():
            if run.spec.role is Role.APP:
                break
            passed = run.succeeded if run.spec.role is Role.INIT else run.step is Step.RUNNING
            if not passed:
                return (name,) if run.step is Step.WAITING and not run.held_back else ()
        return tuple(
            name
            for name, run in self.containers.items()
            if run.spec.role is Role.APP and run.step is Step.WAITING and not run.held_back
        )

    @property
    def apps(self) -> tuple[ContainerRun, ...]:
        return tuple(run for run in self.containers.values() if run.spec.role is Role.APP)

    @property
    def work_done(self) -> bool:
        """All apps have ended; sidecars are stopped next."""
        return all(run.step is Step.ENDED for run in self.apps)

    @property
    def alive(self) -> tuple[ContainerRun, ...]:
        return tuple(run for run in self.containers.values() if run.step in (Step.STARTING, Step.RUNNING))

    def settle(self) -> bool:
        """True once, when the last container of a pod that is to end has ended."""
        if self.terminated or self.alive or not (self.stopping or self.work_done):
            return False
        self.terminated = True
        return True

    def starting(self, name: str, container_id: str) -> None:
        run = self.containers[name]
        run.step, run.container_id, run.reason, run.message, run.held_back = Step.STARTING, container_id, "", "", False

    def started(self, name: str, at: float) -> None:
        run = self.containers[name]
        run.step, run.started_at, run.finished_at, run.failed_starts = Step.RUNNING, at, None, 0

    def start_failed(self, name: str, reason: str, message: str) -> int:
        """How often it failed in a row, this time included."""
        run = self.containers[name]
        run.step, run.reason, run.message, run.held_back = Step.WAITING, reason, message, True
        run.failed_starts += 1
        return run.failed_starts

    def ended(self, name: str, at: float, exit_code: int) -> bool:
        """True if the container is to be started again after a pause."""
        run = self.containers[name]
        run.step, run.finished_at, run.exit_code = Step.ENDED, at, exit_code
        if self.stopping or not self._starts_again(run):
            return False
        run.restarts += 1
        run.step, run.reason, run.held_back = Step.WAITING, "CrashLoopBackOff", True
        return True

    def _starts_again(self, run: ContainerRun) -> bool:
        match run.spec.role:
            case Role.INIT:
                return False
            case Role.SIDECAR:
                return not self.work_done
            case Role.APP:
                return run.restarts < self.pod.restarts

    def start_again(self, name: str) -> None:
        self.containers[name].held_back = False

    @property
    def phase(self) -> str:
        if self.terminated:
            return "Succeeded" if all(run.exit_code == 0 for run in self.apps) and self.work_done else "Failed"
        return "Running" if self.initialized and any(run.started_at is not None for run in self.apps) else "Pending"

    @property
    def initialized(self) -> bool:
        return all(run.succeeded for run in self.containers.values() if run.spec.role is Role.INIT) and all(
            run.started_at is not None for run in self.containers.values() if run.spec.role is Role.SIDECAR
        )

    @property
    def ready(self) -> bool:
        return not self.terminated and all(
            run.step is Step.RUNNING for run in self.containers.values() if run.spec.role is not Role.INIT
        )

    def transition(self, condition: str, *, true: bool, now: float) -> float:
        """When the condition took this value; now, if it did not have it before."""
        known = self.transitions.get(condition)
        if known is None or known[0] is not true:
            known = self.transitions[condition] = (true, now)
        return known[1]

    def note_health(self, health: Mapping[tuple[str, str], Mapping[str, bool | None]]) -> bool:
        """Take over the health of held devices; None (not listed) changes nothing. True if something changed."""
        changed = False
        for key, ids in health.items():
            known = self.device_health.setdefault(key, {})
            for device_id, reported in sorted(ids.items()):
                healthy = known.get(device_id, True) if reported is None else reported
                if known.get(device_id) != healthy:
                    known[device_id] = healthy
                    changed = True
        return changed


@dataclass(slots=True)
class Entry:
    pod: Pod
    run: PodRun | None = None
    rejected: bool = False
    finished: bool = False
    """The object's final deletion was asked for."""

    @property
    def active(self) -> bool:
        if self.rejected or (self.run is not None and self.run.terminated):
            return False
        return not self.pod.ended or (self.run is not None and self.run.stopping)


class PodBook:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self.sources_ready = False
        """All pods of the API have been handed in once; nothing is freed before that."""

    def put(self, pod: Pod) -> Entry:
        with self._lock:
            entry = self._entries.setdefault(pod.uid, Entry(pod))
            entry.pod = pod
            if entry.run is not None:
                entry.run.pod = pod
            return entry

    def remove(self, uid: str) -> Entry | None:
        with self._lock:
            return self._entries.pop(uid, None)

    def get(self, uid: str) -> Entry | None:
        with self._lock:
            return self._entries.get(uid)

    def entries(self) -> tuple[Entry, ...]:
        """In the order in which the kubelet came to know them."""
        with self._lock:
            return tuple(self._entries.values())

    def active(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries() if entry.active)

    def active_uids(self) -> frozenset[str]:
        return frozenset(entry.pod.uid for entry in self.active())
