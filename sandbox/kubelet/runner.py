"""Runs admitted pods: start, restart, stop, finish, and the status of each step.

Takes entries of the pod book and changes of containers and devices; calls the runtime, submits statuses and emits
Events. `lifecycle` decides what is done next; everything here runs in the sync loop.
"""

import threading
import time
from dataclasses import dataclass

from sandbox.cdi import CdiError
from sandbox.kubelet.injection import merge
from sandbox.kubelet.lifecycle import Entry, PodRun, Step
from sandbox.kubelet.node_status import invented_node_ip
from sandbox.kubelet.parts import KubeletParts
from sandbox.kubelet.pod_status import status_of
from sandbox.kubelet.pods import Pod
from sandbox.kubelet.registration import PluginClient
from sandbox.kubelet.runtime import ContainerRecord, ContainerRequest, ContainerState
from sandbox.kubelet.selection import Refusal
from sandbox.kubelet.times import epoch_seconds
from sandbox.kubelet.writer import ApiWriter


@dataclass(frozen=True, slots=True)
class StartFailure:
    """The container's waiting reason and message; it is tried again."""

    reason: str
    message: str


class PodRunner:
    def __init__(self, parts: KubeletParts, writer: ApiWriter) -> None:
        self._parts = parts
        self._book = parts.book
        self._table = parts.table
        self._runtime = parts.runtime
        self._loop = parts.loop
        self._timings = parts.timings
        self._writer = writer

    def begin(self, entry: Entry) -> None:
        """A pod was admitted."""
        self.adopt(entry)
        self.health(entry)
        self.sync(entry)

    def adopt(self, entry: Entry) -> PodRun:
        """A run for the pod, with the containers that the runtime has of it from before a kubelet restart."""
        pod = entry.pod
        admitted_at = epoch_seconds(pod.start_time) or time.time()
        run = PodRun(pod=pod, admitted_at=admitted_at)
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
            host_ip=parts.node.host_ip if parts.node else invented_node_ip(parts.node_name),
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
        """With what its plugins answered at admission: no Allocate is made here, a restart has the same devices."""
        if entry.run is None:
            return
        entry.run.starting(name, "")
        asked = self._to_ask(entry.pod, name)
        if not asked:
            self._launch(entry, name)
            return

        def ask() -> None:
            refusal = next((refused for client, ids in asked if (refused := client.pre_start(ids))), None)
            self._loop.post(lambda: self._launch(entry, name, refusal))

        # Each pod has a worker of its own: no other waits for this plugin.
        threading.Thread(target=ask, name=f"pre-start {entry.pod.name}", daemon=True).start()

    def _to_ask(self, pod: Pod, name: str) -> list[tuple[PluginClient, frozenset[str]]]:
        """Plugins that want to know of each start, with the container's devices."""
        holdings = sorted(self._table.holdings_of(pod.uid, name).items())
        found = ((self._parts.endpoints.get(resource), holding.device_ids) for resource, holding in holdings)
        return [(client, ids) for client, ids in found if client is not None and client.options.pre_start_required]

    def _launch(self, entry: Entry, name: str, refusal: Refusal | None = None) -> None:
        run = entry.run
        if run is None or self._book.get(entry.pod.uid) is not entry:
            return  # it has left the API meanwhile
        if refusal is not None or run.stopping:
            message = refusal.message if refusal is not None else "the pod is ending"
            started: ContainerRecord | StartFailure = StartFailure("CreateContainerConfigError", message)
        else:
            started = self._started(entry.pod, name)
        if isinstance(started, StartFailure):
            failure = started
            self._loop.post(lambda: self._start_failed(entry, name, failure))  # after those that start with it
        else:
            run.starting(name, started.container_id)

    def _started(self, pod: Pod, name: str) -> ContainerRecord | StartFailure:
        container = pod.container(name)
        for resource, count in container.devices:
            if count and self._table.knows(resource) and resource not in self._parts.endpoints:
                text = f"endpoint not found in cache for a registered resource: {resource}"
                return StartFailure("CreateContainerConfigError", text)
        holdings = self._table.holdings_of(pod.uid, name)
        given = merge({resource: h.answer for resource, h in holdings.items()}, container.env, self._parts.random)
        try:
            options = given.resolved(self._parts.cdi_dirs)
        except CdiError as error:
            return StartFailure("CreateContainerError", str(error))
        return self._runtime.start(
            ContainerRequest(
                pod_uid=pod.uid,
                namespace=pod.namespace,
                pod=pod.name,
                container=name,
                options=options,
                device_ids={resource: tuple(sorted(h.device_ids)) for resource, h in sorted(holdings.items())},
                annotations=pod.annotations,
                run_seconds=container.run_seconds,
                start_seconds=self._timings.start_seconds,
                stop_seconds=self._timings.stop_seconds,
            )
        )

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
        """Note that of every device that a container of the pod got; whether one changed."""
        run = entry.run
        if run is None:
            return False
        devices = {key: set(ids) for key, ids in run.device_health.items()}
        for name in run.containers:
            for resource, holding in self._table.holdings_of(run.pod.uid, name).items():
                devices.setdefault((name, resource), set()).update(holding.device_ids)
        return run.note_health(
            {
                (name, resource): {device_id: self._table.health(resource, device_id) for device_id in sorted(ids)}
                for (name, resource), ids in sorted(devices.items())
            }
        )
