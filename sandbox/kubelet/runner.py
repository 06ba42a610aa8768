"""Runs admitted pods: start, restart, stop, finish, and the status of each step.

Takes entries of the pod book and changes of containers and devices; calls the runtime, submits statuses and emits
Events. `lifecycle` decides what is done next; everything here runs in the sync loop.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from sandbox.kubelet.admission import Admission
from sandbox.kubelet.api import ClusterApi
from sandbox.kubelet.containers import ContainerRecord, ContainerState
from sandbox.kubelet.lifecycle import Entry, PodBook, PodRun, Step
from sandbox.kubelet.pod_status import status_of
from sandbox.kubelet.pods import Pod
from sandbox.kubelet.runtime import ScriptedRuntime
from sandbox.kubelet.settings import Switches, Timings
from sandbox.kubelet.starts import ContainerStarts, StartFailure
from sandbox.kubelet.times import epoch_seconds
from sandbox.kubelet.writer import ApiWriter
from sandbox.loop import Loop


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletParts:
    """What the pods' workers use and do not own."""

    book: PodBook
    admission: Admission
    starts: ContainerStarts
    runtime: ScriptedRuntime
    loop: Loop
    writer: ApiWriter
    api: ClusterApi
    timings: Timings
    switches: Switches
    pod_ip: Callable[[Pod], str]
    host_ip: Callable[[], str]


class PodRunner:
    def __init__(self, parts: KubeletParts) -> None:
        self._parts = parts
        self._book = parts.book
        self._runtime = parts.runtime
        self._loop = parts.loop
        self._writer = parts.writer
        self._timings = parts.timings

    def begin(self, entry: Entry) -> None:
        """A pod was admitted."""
        uid, run = entry.pod.uid, self.adopt(entry)
        if entry.pod.active_deadline_seconds is not None:
            left = run.admitted_at + entry.pod.active_deadline_seconds - time.time()
            self._loop.after(max(0.0, left), lambda: self.deadline(uid))
        self.health(entry)
        self.sync(entry)

    def adopt(self, entry: Entry) -> PodRun:
        """A run for the pod, with the containers that the runtime has of it from before a kubelet restart."""
        pod = entry.pod
        admitted_at = epoch_seconds(pod.start_time) or time.time()
        run = PodRun(pod=pod, admitted_at=admitted_at, pod_ip=pod.pod_ip or self._parts.pod_ip(pod))
        for record in self._runtime.containers(pod.uid):
            if record.start_error:
                continue
            name = record.request.container
            run.starting(name, record.container_id)
            if record.state is not ContainerState.CREATED and record.started_at is not None:
                run.started(name, record.started_at)
            if record.state is ContainerState.EXITED and run.ended(name, record.finished_at or 0.0, record.exit_code):
                run.start_again(name)
        entry.run = run
        return run

    def sync(self, entry: Entry) -> None:
        run = entry.run
        if run is None:
            return
        for name in run.to_start():
            self._start(entry, name)
        if run.work_done and run.alive and not run.stopping:
            run.stopping = True
            self.stop_containers(run.pod.uid, run.pod.grace_seconds)
        run.settle()
        self.write(entry)
        self.finish_if_deleting(entry)

    def stop(self, entry: Entry, grace_seconds: float) -> None:
        if entry.run is None:
            return
        entry.run.stopping = True
        self.stop_containers(entry.pod.uid, grace_seconds)
        self.sync(entry)

    def stop_containers(self, pod_uid: str, grace_seconds: float = 0.0) -> None:
        """A shorter grace than two seconds is two: also after a deletion with grace 0."""
        grace_seconds = max(grace_seconds, self._timings.force_stop_seconds)
        for record in self._runtime.containers(pod_uid):
            self._runtime.stop(record.container_id, grace_seconds)

    def finish_if_deleting(self, entry: Entry) -> None:
        ended = entry.run is None or entry.run.terminated
        if entry.pod.deleting and ended and not entry.finished:
            entry.finished = True
            self._writer.finish(entry.pod)

    def deadline(self, uid: str) -> None:
        entry = self._book.get(uid)
        if entry is not None and entry.run is not None and not entry.run.terminated:
            entry.run.failure = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
            self.stop(entry, entry.pod.grace_seconds)

    def repair(self, uid: str) -> None:
        """Another client ended the pod's phase while it runs: the kubelet's own view wins in the end."""
        entry = self._book.get(uid)
        if entry is not None and entry.run is not None and entry.pod.ended and not entry.run.terminated:
            self.write(entry, again=True)

    def write(self, entry: Entry, *, again: bool = False) -> None:
        if entry.run is None:
            return
        parts = self._parts
        status = status_of(
            entry.run,
            host_ip=parts.host_ip(),
            with_device_health=parts.switches.resource_health_status,
            now=time.time(),
        )
        self._writer.submit(entry.pod, status, again=again)

    def container_changed(self, record: ContainerRecord) -> None:
        name = record.request.container
        entry, run = self._current(record)
        if entry is None or run is None:
            return
        if record.state is ContainerState.RUNNING:
            run.started(name, record.started_at or time.time())
            self._parts.api.emit(entry.pod, "Normal", "Started", "Container started")
            self.sync(entry)
        elif record.start_error:
            self._start_failed(entry, name, StartFailure("RunContainerError", record.start_error))
        elif run.stopping:
            self._ended(record)
        else:
            self._loop.after(self._timings.exit_notice_seconds, lambda: self._ended(record))

    def _ended(self, record: ContainerRecord) -> None:
        entry, run = self._current(record)
        if entry is None or run is None:
            return
        name = record.request.container
        if run.ended(name, record.finished_at or time.time(), record.exit_code):
            pauses = self._timings.restart_backoff_seconds
            restarts = run.containers[name].restarts
            self._start_later(entry, name, pauses[min(restarts, len(pauses)) - 1])
        self.sync(entry)

    def _current(self, record: ContainerRecord) -> tuple[Entry | None, PodRun | None]:
        """The pod's run, if the record is about the container it has now and has not seen the end of."""
        entry = self._book.get(record.request.pod_uid)
        run = entry.run if entry else None
        each = run.containers.get(record.request.container) if run else None
        if each is None or each.container_id != record.container_id or each.step not in (Step.STARTING, Step.RUNNING):
            return None, None
        return entry, run

    def _start(self, entry: Entry, name: str) -> None:
        run = entry.run
        if run is None:
            return
        run.starting(name, "")
        uid = entry.pod.uid
        # A plugin may take 30 s over PreStartContainer, so the answer comes back through the loop.
        self._parts.starts.prepare(
            entry.pod, name, lambda result: self._loop.post(lambda: self._prepared(uid, name, result))
        )

    def _prepared(self, uid: str, name: str, failure: StartFailure | None) -> None:
        entry = self._book.get(uid)
        if entry is None or entry.run is None:
            return
        if failure is not None or entry.run.stopping:
            self._start_failed(entry, name, failure or StartFailure("ContainerCreating", ""))
            return
        started = self._parts.starts.start(entry.pod, name)
        if isinstance(started, StartFailure):
            self._start_failed(entry, name, started)
        else:
            entry.run.starting(name, started.container_id)

    def _start_failed(self, entry: Entry, name: str, failure: StartFailure) -> None:
        if entry.run is None:
            return
        failures = entry.run.start_failed(name, failure.reason, failure.message)
        pauses = self._timings.start_retry_seconds
        self._start_later(entry, name, pauses[min(failures, len(pauses)) - 1])
        self.sync(entry)

    def _start_later(self, entry: Entry, name: str, seconds: float) -> None:
        def again() -> None:
            if entry.run is not None and self._book.get(entry.pod.uid) is entry:
                entry.run.start_again(name)
                self.sync(entry)

        self._loop.after(seconds, again)

    def health_changed(self, resource: str) -> None:
        for entry in self._book.entries():
            run = entry.run
            if run is None or run.terminated or not any(held == resource for _, held in run.device_health):
                continue
            if self.health(entry):
                self.write(entry)

    def health(self, entry: Entry) -> bool:
        return entry.run is not None and entry.run.note_health(self._parts.starts.health(entry.run))
