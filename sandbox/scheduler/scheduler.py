"""The scheduler's thread: takes in what the watches saw, tries one waiting pod after the other, hands writes on.

    watches -> loop -> book (nodes, usage, nominations) -> waiting.pop -> place -> writer: bind | condition, Event
                     \\-> waiting.wake (what could help which pod)        \\-> book.place (assumed) | waiting.fail

All state belongs to this thread; watches and writers only post calls to its loop. It never waits for the API.
"""

import logging
import time
from dataclasses import replace

from kubernetes.client import ApiClient

from controller.model.views import NodeView
from controller.simulator.filters import ROOM_FILTERS
from kube.errors import ApiError, Conflict, NotFound, Unavailable
from kube.reflector import Key, Reflector
from sandbox.loop import Loop
from sandbox.scheduler.book import Book
from sandbox.scheduler.placement import helped, place
from sandbox.scheduler.records import Failure, PodRecord, read_node, read_pod
from sandbox.scheduler.waiting import BackOff, Item, Waiting
from sandbox.scheduler.writer import Writer

log = logging.getLogger(__name__)

NAME = "default-scheduler"
TURN_SECONDS = 0.02
BINDING_PLUGIN = "DefaultBinder"


class Scheduler:
    """Binds the pods whose schedulerName is `name`; all bound pods count, by whichever scheduler."""

    def __init__(self, api: ApiClient, *, name: str = NAME, back_off: BackOff | None = None) -> None:
        self._name = name
        self._loop = Loop(name)
        self._book = Book()
        self._waiting = Waiting(back_off or BackOff())
        self._binding: set[str] = set()  # uids that are assumed on a node and were not seen bound yet
        self._writer = Writer(api, name)
        self._pods = Reflector(api, "/api/v1/pods", project=read_pod, on_change=self._hear_pod)
        self._nodes = Reflector(api, "/api/v1/nodes", project=read_node, on_change=self._hear_node)

    def start(self) -> None:
        self._writer.start()
        self._pods.start()
        self._nodes.start()
        self._loop.post(self._turn)
        self._loop.start()

    def stop(self) -> None:
        """Nothing is decided or written after this has returned."""
        self._pods.stop()
        self._nodes.stop()
        self._loop.stop()
        self._writer.stop()

    def _hear_pod(self, _: Key, old: PodRecord | None, new: PodRecord | None) -> None:
        self._loop.post(lambda: self._pod_changed(old, new))

    def _hear_node(self, key: Key, old: NodeView | None, new: NodeView | None) -> None:
        self._loop.post(lambda: self._node_changed(key[1], old, new))

    def _turn(self) -> None:
        """Try the pod whose turn it is; what the watches saw meanwhile is taken in before the next."""
        synced = self._pods.synced.is_set() and self._nodes.synced.is_set()
        item = self._waiting.pop(time.monotonic()) if synced else None
        self._loop.after(0.0 if item else TURN_SECONDS, self._turn)
        if item:
            self._attempt(item)

    def _attempt(self, item: Item) -> None:
        pod = item.record.view
        answer = place(pod, self._book.nodes, self._book.usage, self._book.nominated)
        if isinstance(answer, Failure):
            self._give_up(item, answer)
            return
        self._book.drop_nomination(pod.uid)
        self._book.place(pod, answer)
        self._binding.add(pod.uid)
        self._writer.bind(item.record, answer, lambda error: self._loop.post(lambda: self._bind_ended(item, error)))

    def _give_up(self, item: Item, failure: Failure, *, reason: str = "Unschedulable") -> None:
        pod = item.record.view
        self._waiting.fail(item, failure, time.monotonic())
        self._writer.report_unschedulable(item.record, failure.message, reason=reason)
        item.record = replace(item.record, view=replace(pod, nominated_node=""), reported=failure.message)
        if self._book.drop_nomination(pod.uid):
            self._room_freed()

    def _bind_ended(self, item: Item, error: ApiError | None) -> None:
        """A bind that failed gives the place back, and the pod tries again after its back-off."""
        uid = item.record.view.uid
        if error is None or uid not in self._binding:
            return
        self._binding.discard(uid)
        self._book.remove(uid)
        failure = Failure(message=f"binding rejected: {error}", plugins=frozenset({BINDING_PLUGIN}))
        if isinstance(error, (NotFound, Conflict, Unavailable)):
            # It may be gone, or bound already: the watch decides, and nothing is reported about the pod until then.
            self._waiting.fail(item, failure, time.monotonic())
        else:
            log.warning("binding %s failed: %s", item.record.view.title, error)
            self._give_up(item, failure, reason="SchedulerError")
        self._waiting.retry(item)
        self._room_freed()

    def _pod_changed(self, old: PodRecord | None, new: PodRecord | None) -> None:
        if old is not None and (new is None or new.view.uid != old.view.uid):
            self._pod_gone(old)
        if new is None:
            return
        pod = new.view
        if pod.node:
            self._waiting.forget(pod.uid)
            self._binding.discard(pod.uid)
            held = self._book.drop_nomination(pod.uid)
            if self._book.place(pod, pod.node) or held:
                self._room_freed()
        elif pod.uid not in self._binding:
            self._unbound_changed(new)

    def _unbound_changed(self, record: PodRecord) -> None:
        pod = record.view
        if pod.scheduler_name != self._name:
            return
        if pod.deleting or pod.scheduling_gates:
            self._waiting.forget(pod.uid)
            freed = self._book.drop_nomination(pod.uid)
        else:
            freed = self._book.nominate(pod)
            self._waiting.put(record)
        if freed:
            self._room_freed()

    def _pod_gone(self, record: PodRecord) -> None:
        uid = record.view.uid
        self._waiting.forget(uid)
        self._binding.discard(uid)
        nominated = self._book.drop_nomination(uid)
        if self._book.remove(uid) or nominated:
            self._room_freed()

    def _node_changed(self, name: str, old: NodeView | None, new: NodeView | None) -> None:
        self._book.put_node(name, new)
        if new is not None:
            before = old if old is not None and old.uid == new.uid else None
            self._waiting.wake(lambda record, _: helped(record.view, before, new))

    def _room_freed(self) -> None:
        """Any pod that failed for lack of room is worth another attempt, wherever the room is."""
        self._waiting.wake(lambda _, failure: bool(failure.plugins & ROOM_FILTERS))
