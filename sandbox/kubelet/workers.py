"""What a kubelet does with pods: admit, run, stop, finish. Everything here runs in the sync loop.

In: changes of pods at the API, of containers in the runtime, of devices. Out: calls of the runtime, statuses for the
writer, Events. The decisions are in `admission` and `lifecycle`; this module carries them out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sandbox.kubelet.admission import Admission
from sandbox.kubelet.api import KubeletApi
from sandbox.kubelet.clock import Clock, epoch_seconds
from sandbox.kubelet.containers import ContainerRecord, ContainerState
from sandbox.kubelet.lifecycle import PodRun, Step
from sandbox.kubelet.loop import SyncLoop
from sandbox.kubelet.pod_status import ended_unstarted_status, rejected_status, status_of
from sandbox.kubelet.podbook import Entry, PodBook
from sandbox.kubelet.pods import Pod
from sandbox.kubelet.runtime import ScriptedRuntime
from sandbox.kubelet.settings import Switches, Timings
from sandbox.kubelet.starts import ContainerStarts, StartFailure
from sandbox.kubelet.writer import ApiWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the workers use and do not own."""

    book: PodBook
    admission: Admission
    starts: ContainerStarts
    runtime: ScriptedRuntime
    loop: SyncLoop
    writer: ApiWriter
    api: KubeletApi
    clock: Clock
    timings: Timings
    switches: Switches
    pod_ip: Callable[[Pod], str]
    host_ip: Callable[[], str]


class PodWorkers:
    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._book = around.book
        self._runtime = around.runtime
        self._loop = around.loop
        self._writer = around.writer
        self._timings = around.timings

    # ------------------------------------------------------------------------------- from the API

    def begin(self, pods: list[Pod]) -> None:
        """The kubelet's first look: all pods at once, oldest first, and containers whose pods are gone."""
        for pod in pods:
            self._book.put(pod)
        self._book.sources_ready = True
        for record in self._runtime.containers():
            if self._book.get(record.request.pod_uid) is None:
                self._runtime.stop(record.container_id, self._timings.force_stop_seconds)
        for pod in sorted(pods, key=lambda pod: (pod.created, pod.namespace, pod.name)):
            self._add(pod)

    def changed(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._gone(old)
        if new is None:
            return
        known = self._book.get(new.uid) is not None
        entry = self._book.put(new)
        if known:
            self._update(entry)
        else:
            self._add(new)

    def _add(self, pod: Pod) -> None:
        entry = self._book.put(pod)
        if pod.ended:
            self._stop_containers(pod.uid, self._timings.stop_seconds)
            self._finish_if_deleting(entry)
            return
        if pod.deleting:
            self._adopt(entry)
            self._update(entry)
            return
        for problem in pod.script.problems:
            self._emit(pod, "Warning", "InvalidSandboxAnnotation", problem)
        running = {
            record.request.container
            for record in self._runtime.containers(pod.uid)
            if record.state is ContainerState.RUNNING
        }
        rejection = self._around.admission.decide(pod, lambda name: name in running)
        if rejection is not None:
            entry.rejected = True
            self._writer.submit(pod, rejected_status(rejection, self._around.clock.wall()))
            self._emit(pod, "Warning", rejection.reason, rejection.message)
            self._stop_containers(pod.uid, self._timings.stop_seconds)
            return
        run = self._adopt(entry)
        if pod.active_deadline_seconds is not None:
            left = run.admitted_at + pod.active_deadline_seconds - self._around.clock.wall()
            self._loop.after(max(0.0, left), lambda: self._deadline(pod.uid))
        self._health(entry)
        self._sync(entry)

    def _adopt(self, entry: Entry) -> PodRun:
        """A run for the pod, with the containers that the runtime has of it from before a kubelet restart."""
        pod = entry.pod
        admitted_at = epoch_seconds(pod.start_time) or self._around.clock.wall()
        run = PodRun(pod=pod, admitted_at=admitted_at, pod_ip=pod.pod_ip or self._around.pod_ip(pod))
        for record in self._runtime.containers(pod.uid):
            name = record.request.container
            run.starting(name, record.container_id)
            if record.state is not ContainerState.CREATED and record.started_at is not None:
                run.started(name, record.started_at)
            if record.state is ContainerState.EXITED and run.ended(name, record.finished_at or 0.0, record.exit_code):
                run.start_again(name)
        entry.run = run
        return run

    def _update(self, entry: Entry) -> None:
        pod, run = entry.pod, entry.run
        if pod.deleting and run is not None and not run.stopping and not run.terminated:
            self._stop(entry, pod.deletion_grace_seconds)
        self._finish_if_deleting(entry)
        if pod.ended and run is not None and not run.terminated and not run.stopping:
            self._loop.after(self._timings.status_repair_seconds, lambda: self._repair(pod.uid))

    def _repair(self, uid: str) -> None:
        """Somebody else ended the pod's phase while it runs: the kubelet's own view wins in the end."""
        entry = self._book.get(uid)
        if entry is not None and entry.run is not None and entry.pod.ended and not entry.run.terminated:
            self._write(entry, again=True)

    def _gone(self, pod: Pod) -> None:
        """The object vanished. If that was no end the kubelet knew of, containers run on for a grace of their own."""
        self._book.remove(pod.uid)
        self._writer.forget(pod.uid)
        self._stop_containers(pod.uid, self._timings.force_stop_seconds)

    # --------------------------------------------------------------------------- from the runtime

    def container_changed(self, record: ContainerRecord) -> None:
        name = record.request.container
        entry, run = self._current(record)
        if entry is None or run is None:
            return
        if record.state is ContainerState.RUNNING:
            run.started(name, record.started_at or self._around.clock.wall())
            self._emit(entry.pod, "Normal", "Started", "Container started")
            self._sync(entry)
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
        if run.ended(name, record.finished_at or self._around.clock.wall(), record.exit_code):
            pauses = self._timings.restart_backoff_seconds
            restarts = run.containers[name].restarts
            self._start_later(entry, name, pauses[min(restarts, len(pauses)) - 1])
        self._sync(entry)

    def _current(self, record: ContainerRecord) -> tuple[Entry | None, PodRun | None]:
        """The pod's run, if the record is about the container it has now and has not seen the end of."""
        entry = self._book.get(record.request.pod_uid)
        run = entry.run if entry else None
        each = run.containers.get(record.request.container) if run else None
        if each is None or each.container_id != record.container_id or each.step not in (Step.STARTING, Step.RUNNING):
            return None, None
        return entry, run

    # ------------------------------------------------------------------------------- from devices

    def health_changed(self, resource: str) -> None:
        for entry in self._book.entries():
            run = entry.run
            if run is None or run.terminated or not any(held == resource for _, held in run.device_health):
                continue
            if self._health(entry):
                self._write(entry)

    def _health(self, entry: Entry) -> bool:
        return entry.run is not None and entry.run.note_health(self._around.starts.health(entry.run))

    # ------------------------------------------------------------------------------------- inside

    def _sync(self, entry: Entry) -> None:
        run = entry.run
        if run is None:
            return
        for name in run.to_start():
            self._start(entry, name)
        if run.work_done and run.alive and not run.stopping:
            run.stopping = True
            self._stop_containers(run.pod.uid, self._timings.stop_seconds)
        run.settle()
        self._write(entry)
        self._finish_if_deleting(entry)

    def _start(self, entry: Entry, name: str) -> None:
        run = entry.run
        if run is None:
            return
        run.starting(name, "")
        uid = entry.pod.uid
        # A plugin may take 30 s over PreStartContainer, so the answer comes back through the loop.
        self._around.starts.prepare(
            entry.pod, name, lambda result: self._loop.post(lambda: self._prepared(uid, name, result))
        )

    def _prepared(self, uid: str, name: str, failure: StartFailure | None) -> None:
        entry = self._book.get(uid)
        if entry is None or entry.run is None:
            return
        if failure is not None or entry.run.stopping:
            self._start_failed(entry, name, failure or StartFailure("ContainerCreating", ""))
            return
        record = self._around.starts.start(entry.pod, name)
        entry.run.starting(name, record.container_id)

    def _start_failed(self, entry: Entry, name: str, failure: StartFailure) -> None:
        if entry.run is None:
            return
        failures = entry.run.start_failed(name, failure.reason, failure.message)
        pauses = self._timings.start_retry_seconds
        self._start_later(entry, name, pauses[min(failures, len(pauses)) - 1])
        self._sync(entry)

    def _start_later(self, entry: Entry, name: str, seconds: float) -> None:
        def again() -> None:
            if entry.run is not None and self._book.get(entry.pod.uid) is entry:
                entry.run.start_again(name)
                self._sync(entry)

        self._loop.after(seconds, again)

    def _deadline(self, uid: str) -> None:
        entry = self._book.get(uid)
        if entry is not None and entry.run is not None and not entry.run.terminated:
            entry.run.failure = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
            self._stop(entry, self._timings.stop_seconds)

    def _stop(self, entry: Entry, grace_seconds: float) -> None:
        if entry.run is None:
            return
        entry.run.stopping = True
        self._stop_containers(entry.pod.uid, grace_seconds)
        self._sync(entry)

    def _stop_containers(self, pod_uid: str, grace_seconds: float) -> None:
        for record in self._runtime.containers(pod_uid):
            self._runtime.stop(record.container_id, grace_seconds)

    def _finish_if_deleting(self, entry: Entry) -> None:
        run = entry.run
        if not entry.pod.deleting or (run is not None and not run.terminated):
            return
        if run is None and not entry.pod.ended and not entry.rejected:
            self._writer.submit(entry.pod, ended_unstarted_status(entry.pod, self._around.clock.wall()))
        self._writer.finish(entry.pod)

    def _write(self, entry: Entry, *, again: bool = False) -> None:
        if entry.run is None:
            return
        around = self._around
        status = status_of(
            entry.run,
            host_ip=around.host_ip(),
            with_device_health=around.switches.resource_health_status,
            now=around.clock.wall(),
        )
        self._writer.submit(entry.pod, status, again=again)

    def _emit(self, pod: Pod, event_type: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        self._around.api.emit(pod, event_type, reason, message)
