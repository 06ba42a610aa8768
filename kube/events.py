"""Kubernetes Events about objects, written by a thread of their own: `kubectl describe` shows them.

In go an object, a type, a reason and a sentence. The same four about the same object (by uid) are one Event whose count
grows; repeats that come faster than `quiet_seconds` are counted and written with the next one. `emit` never blocks and
never raises: where the queue is full or the API is away, Events are lost, and nothing else.
"""

import hashlib
import logging
import queue
import threading
import time
from collections import OrderedDict
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Literal

from kubernetes.client import ApiClient
from pydantic.alias_generators import to_camel

from kube import apply, errors

log = logging.getLogger(__name__)

EventType = Literal["Normal", "Warning"]
MESSAGE_CHARS = 1024  # the API's own limit
NAME_CHARS = 253
CLUSTER_SCOPED_NAMESPACE = "default"  # where the API keeps Events about objects without a namespace


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectReference:
    """What an Event is about."""

    api_version: str
    kind: str
    name: str
    uid: str
    namespace: str = ""

    def as_json(self) -> dict[str, str]:
        return {to_camel(name): value for name, value in asdict(self).items() if value}


@dataclass(frozen=True, slots=True)
class _Emitted:
    about: ObjectReference
    type: EventType
    reason: str
    message: str

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.about.uid or self.about.name, self.type, self.reason, self.message)

    @property
    def name(self) -> str:
        """The same after a restart, so that the count goes on."""
        digest = hashlib.sha256("\0".join(self.key).encode()).hexdigest()[:16]
        return f"{self.about.name[: NAME_CHARS - 17]}.{digest}"


@dataclass(slots=True)
class _Written:
    written_at: float  # monotonic
    unwritten: int = 0  # repeats since then


class EventRecorder:
    def __init__(
        self,
        api: ApiClient,
        component: str,
        *,
        instance: str = "",
        quiet_seconds: float = 10.0,
        queue_size: int = 1000,
    ) -> None:
        self.dropped = 0
        self._api, self._component, self._instance = api, component, instance or component
        self._quiet_seconds = quiet_seconds
        self._queue: queue.Queue[_Emitted | None] = queue.Queue(queue_size)
        self._written: OrderedDict[tuple[str, str, str, str], _Written] = OrderedDict()
        self._remembered = queue_size * 4
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"events of {component}")

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, timeout_seconds: float = 2.0) -> None:
        """Write what is queued, but no longer than this; the rest is dropped without a word."""
        try:
            self._queue.put(None, timeout=timeout_seconds)
            if self._thread.is_alive():
                self._thread.join(timeout_seconds)
        except queue.Full:
            pass
        self._given_up.set()

    def emit(self, about: ObjectReference, event_type: EventType, reason: str, message: str) -> None:
        try:
            self._queue.put_nowait(_Emitted(about, event_type, reason, message[:MESSAGE_CHARS]))
        except queue.Full:
            self.dropped += 1
            if self.dropped % 1000 == 1:
                log.warning("events lost, %d so far: they come faster than the API takes them", self.dropped)

    def _run(self) -> None:
        while (emitted := self._queue.get()) is not None:
            if self._given_up.is_set():
                self.dropped += 1
                continue
            try:
                self._write(emitted)
            except errors.ApiError as error:
                self.dropped += 1
                log.warning("event %s about %s was not written: %s", emitted.reason, emitted.about.name, error)
            except Exception:
                self.dropped += 1
                log.exception("event %s about %s was not written", emitted.reason, emitted.about.name)

    def _write(self, emitted: _Emitted) -> None:
        now = time.monotonic()
        known = self._written.get(emitted.key)
        if known is not None and now - known.written_at < self._quiet_seconds:
            known.unwritten += 1
            return
        if known is None or not self._count_up(emitted, 1 + known.unwritten):
            self._create(emitted)
        self._written[emitted.key] = _Written(written_at=now)
        self._written.move_to_end(emitted.key)
        if len(self._written) > self._remembered:
            self._written.popitem(last=False)

    def _create(self, emitted: _Emitted) -> None:
        now = _now()
        namespace = emitted.about.namespace or CLUSTER_SCOPED_NAMESPACE
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": emitted.name, "namespace": namespace},
            "involvedObject": emitted.about.as_json(),
            "type": emitted.type,
            "reason": emitted.reason,
            "message": emitted.message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            apply.create(self._api, f"/api/v1/namespaces/{namespace}/events", body)
        except errors.AlreadyExists:
            self._count_up(emitted, 1)

    def _count_up(self, emitted: _Emitted, by: int) -> bool:
        """False: the Event is gone (the API keeps them for an hour)."""
        path = f"/api/v1/namespaces/{emitted.about.namespace or CLUSTER_SCOPED_NAMESPACE}/events/{emitted.name}"
        try:
            event = apply.get(self._api, path)
            count = int(event.get("count") or 1) + by
            apply.merge_patch(self._api, path, {"count": count, "lastTimestamp": _now()})
        except errors.NotFound:
            return False
        return True


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
