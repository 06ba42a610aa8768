"""Handles pods that appear, change or vanish at the API: admits them, and passes them to the runner.

Takes changes of pods in the server's order. Admitted pods run, rejected ones get their final status and an Event,
vanished ones leave the book while their containers get a grace period. Everything here runs in the sync loop.
"""

import time

from sandbox.kubelet.admission import Rejection, decide
from sandbox.kubelet.allocation import Allocator
from sandbox.kubelet.lifecycle import Entry
from sandbox.kubelet.parts import KubeletParts
from sandbox.kubelet.pod_status import rejected_status
from sandbox.kubelet.pods import Pod
from sandbox.kubelet.runner import PodRunner
from sandbox.kubelet.runtime import ContainerState
from sandbox.kubelet.writer import ApiWriter


class PodWorkers:
    def __init__(self, parts: KubeletParts, allocator: Allocator, runner: PodRunner, writer: ApiWriter) -> None:
        self._parts = parts
        self._allocator = allocator
        self._writer = writer
        self._runner = runner
        self._book = parts.book
        self._timings = parts.timings

    def begin(self, pods: list[Pod]) -> None:
        """The first pods: all at once, oldest first, and containers whose pods are gone."""
        for pod in pods:
            self._book.put(pod)
        self._book.sources_ready = True
        for record in self._parts.runtime.containers():
            if self._book.get(record.request.pod_uid) is None:
                self._parts.runtime.stop(record.container_id, self._timings.force_stop_seconds)
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
            self._runner.stop_containers(pod.uid)
            self._runner.finish_if_deleting(entry)
            return
        if pod.deleting:
            self._runner.adopt(entry)
            self._update(entry)
            return
        rejection = decide(self._parts, self._allocator, pod, self._running_containers(pod).__contains__)
        if rejection is not None:
            self._reject(entry, rejection)
            return
        self._runner.begin(entry)

    def _running_containers(self, pod: Pod) -> frozenset[str]:
        """From before a restart of the kubelet: they need no device now, they have theirs."""
        records = self._parts.runtime.containers(pod.uid)
        return frozenset(r.request.container for r in records if r.state is ContainerState.RUNNING)

    def _reject(self, entry: Entry, rejection: Rejection) -> None:
        entry.rejected = True
        self._writer.submit(entry.pod, rejected_status(rejection, time.time()))
        self._parts.api.emit(entry.pod, "Warning", rejection.reason, rejection.message)
        self._runner.stop_containers(entry.pod.uid)

    def _update(self, entry: Entry) -> None:
        pod, run = entry.pod, entry.run
        if pod.deleting and run is not None and not run.stopping and not run.terminated:
            self._runner.stop(entry, pod.deletion_grace_seconds)
        self._runner.finish_if_deleting(entry)
        if pod.ended and run is not None and not run.terminated and not run.stopping:
            self._parts.loop.after(self._timings.status_repair_seconds, lambda: self._runner.repair(pod.uid))

    def _gone(self, pod: Pod) -> None:
        """The object vanished. If that was no end the kubelet knew of, containers run on for a grace of their own."""
        self._book.remove(pod.uid)
        self._writer.forget(pod.uid)
        self._runner.stop_containers(pod.uid)
