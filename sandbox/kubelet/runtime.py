"""Runs scripted containers: without processes, but on time.

Takes start and stop calls of a kubelet; keeps container records, calls its listener at each change, and calls the hooks
by which simulated hardware sees processes come and go. It outlives its kubelet, as a real runtime does: a new kubelet
on the same node finds containers that run. It has a thread of its own and never calls the API.
"""

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from sandbox.kubelet.injection import ContainerOptions
from sandbox.loop import Loop

_KEPT_RECORDS = 2000
KILLED, _TERMINATED = 137, 143


class ContainerState(StrEnum):
    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRequest:
    pod_uid: str
    namespace: str
    pod: str
    container: str
    options: ContainerOptions
    """What the container got: environment, mounts, CDI names, device nodes."""
    device_ids: Mapping[str, tuple[str, ...]]
    """By resource; the container's own, and for a plain init container what later ones take over."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Of the pod."""
    run_seconds: float
    exit_code: int = 0
    start_seconds: float
    stop_seconds: float
    unkillable_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRecord:
    container_id: str
    pid: int
    request: ContainerRequest
    state: ContainerState
    started_at: float | None = None
    finished_at: float | None = None
    """Epoch seconds."""
    exit_code: int = 0
    start_error: str = ""
    """Why the container never ran: the hook refused it."""


class ContainerHooks:
    """Called from the runtime's thread, in the order of events of each container. These simulate no hardware."""

    def container_started(self, container: ContainerRecord) -> str | None:  # noqa: ARG002 - for those that do
        """The processes appear. A returned text is why the container cannot start; it is tried again later."""
        return None

    def container_stopped(self, container: ContainerRecord) -> None:
        """The processes are gone. Only after a start that was not refused."""


Listener = Callable[[ContainerRecord], None]


class ScriptedRuntime:
    def __init__(self, hooks: ContainerHooks | None = None) -> None:
        self._hooks = hooks or ContainerHooks()
        self._lock = threading.RLock()
        self._records: dict[str, ContainerRecord] = {}
        self._ends: dict[str, tuple[float, int]] = {}
        self._stopping: set[str] = set()
        self._numbers = itertools.count(1)
        self._listener: Listener | None = None
        self._loop = Loop("containers")
        self._loop.start()
        self.boots = 1
        """How often the node was started; the boot id of its kubelets follows from it."""

    def listen(self, listener: Listener | None) -> None:
        """The kubelet of now. None: it is gone, and what happens meanwhile is found in the records."""
        with self._lock:
            self._listener = listener

    def start(self, request: ContainerRequest) -> ContainerRecord:
        with self._lock:
            number = next(self._numbers)
            record = ContainerRecord(
                container_id=f"{request.pod_uid[:8]}-{request.container}-{number}",
                pid=10_000 + number,
                request=request,
                state=ContainerState.CREATED,
            )
            self._records[record.container_id] = record
            self._prune()
            self._schedule(request.start_seconds, record.container_id)
        return record

    def stop(self, container_id: str, grace_seconds: float) -> None:
        """The first stop counts: a later one with a shorter grace changes nothing."""
        with self._lock:
            record = self._records.get(container_id)
            if record is None or record.state is ContainerState.EXITED or container_id in self._stopping:
                return
            self._stopping.add(container_id)
            wanted = record.request
            if record.state is ContainerState.CREATED:
                self._end(container_id, 0.0, KILLED)
                return
            killed = wanted.stop_seconds > grace_seconds
            after = min(wanted.stop_seconds, grace_seconds) + wanted.unkillable_seconds
            self._end(container_id, after, KILLED if killed else _TERMINATED)

    def containers(self, pod_uid: str | None = None) -> tuple[ContainerRecord, ...]:
        """In the order in which they were created, ended ones included."""
        with self._lock:
            return tuple(
                record for record in self._records.values() if pod_uid is None or record.request.pod_uid == pod_uid
            )

    def close(self) -> None:
        self._loop.stop()

    def _running(self) -> tuple[ContainerRecord, ...]:
        return tuple(record for record in self._records.values() if record.state is ContainerState.RUNNING)

    def _end(self, container_id: str, after_seconds: float, exit_code: int) -> None:
        self._ends[container_id] = (time.monotonic() + after_seconds, exit_code)
        self._schedule(after_seconds, container_id)

    def _schedule(self, after_seconds: float, container_id: str) -> None:
        if after_seconds != float("inf"):
            self._loop.after(after_seconds, lambda: self._advance(container_id))

    def _prune(self) -> None:
        if len(self._records) > _KEPT_RECORDS:
            ended = [key for key, record in self._records.items() if record.state is ContainerState.EXITED]
            for container_id in ended[: len(self._records) - _KEPT_RECORDS]:
                del self._records[container_id]

    def _advance(self, container_id: str) -> None:
        """A container's due time came: it starts, or it ends, or a stop moved its end meanwhile."""
        with self._lock:
            record = self._records.get(container_id)
            if record is None or record.state is ContainerState.EXITED:
                return
            end = self._ends.get(container_id)
            if end is not None and end[0] > time.monotonic():
                return
        if end is not None:
            self._finish(record, exit_code=end[1])
        elif record.state is ContainerState.CREATED:
            self._begin(record)

    def _begin(self, record: ContainerRecord) -> None:
        error = self._hooks.container_started(record)
        if error is not None:
            self._finish(record, exit_code=128, start_error=error)
            return
        request = record.request
        running = self._put(replace(record, state=ContainerState.RUNNING, started_at=time.time()))
        with self._lock:
            if record.container_id not in self._stopping:
                self._end(record.container_id, request.run_seconds, request.exit_code)
        self._tell(running)

    def _finish(self, record: ContainerRecord, *, exit_code: int, start_error: str = "") -> None:
        ended = replace(
            record,
            state=ContainerState.EXITED,
            finished_at=time.time(),
            exit_code=exit_code,
            start_error=start_error,
        )
        if record.state is ContainerState.RUNNING:
            self._hooks.container_stopped(record)
        self._put(ended)
        self._tell(ended)

    def _put(self, record: ContainerRecord) -> ContainerRecord:
        with self._lock:
            if record.container_id in self._records:
                self._records[record.container_id] = record
        return record

    def _tell(self, record: ContainerRecord) -> None:
        with self._lock:
            listener = self._listener
        if listener is not None:
            listener(record)
