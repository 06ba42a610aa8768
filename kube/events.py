"""Writes Kubernetes Events about objects from a thread of its own; `kubectl describe` shows them.

Events about the same object (by uid) with the same type, reason and series are one Event object: a repeat raises its
count and renews its time and message. Without a series the message is the series. Repeats of the latest Event about an
object within `quiet_seconds` are written together when that time is over (`kube.event_backlog`). Requests are paced, so
that many Events at once, as after a restart, do not flood the API server. `emit` never blocks and never raises: where
the queue is full or the API is away, Events are lost, and nothing else.
"""

import hashlib
import logging
import threading
import time
from typing import Any

from kubernetes.client import ApiClient

from kube import apply, errors
from kube.change_log import ChangeLog
from kube.event_backlog import EventBacklog, EventContent, EventType, ObjectReference, Series
from kube.timestamps import api_time

__all__ = ["EventRecorder", "EventType", "ObjectReference"]

log = logging.getLogger(__name__)

MESSAGE_CHARS = 1024  # the API's own limit
NAME_CHARS = 253
CLUSTER_SCOPED_NAMESPACE = "default"  # where the API keeps Events about objects without a namespace
PER_SECOND = 20.0
BURST = 100.0


class Pace:
    """A token bucket: a burst at once, afterwards so many a second."""

    def __init__(self, *, per_second: float, burst: float) -> None:
        self._per_second, self._burst = per_second, burst
        self._tokens, self._at = burst, 0.0

    def wait(self, now: float) -> float:
        """Seconds until one may be spent."""
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_second)
        self._at = now
        return max(0.0, (1.0 - self._tokens) / self._per_second)

    def spend(self) -> None:
        self._tokens -= 1.0


class EventRecorder:
    def __init__(
        self,
        api: ApiClient,
        component: str,
        *,
        instance: str = "",
        quiet_seconds: float = 10.0,
        queue_size: int = 1000,
        per_second: float = PER_SECOND,
    ) -> None:
        self.dropped = 0
        self._api, self._component, self._instance = api, component, instance or component
        self._backlog = EventBacklog(quiet_seconds=quiet_seconds, size=queue_size, remembered=queue_size * 4)
        self._pace = Pace(per_second=per_second, burst=BURST)
        self._changed = threading.Condition()
        self._stopping = False
        self._given_up = False
        self._refused = ChangeLog(log)
        """The answer to each namespace's last Event, where it was refused: the others fail alike, by the thousand."""
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"events of {component}")

    def start(self) -> None:
        self._thread.start()

    def stop(self, *, timeout_seconds: float = 2.0) -> None:
        """Write what is queued, but no longer than this; the rest is dropped silently."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)
        self._given_up = True

    @property
    def queued(self) -> int:
        """How many series wait to be written."""
        with self._changed:
            return len(self._backlog)

    def emit(
        self, about: ObjectReference, event_type: EventType, reason: str, message: str, *, series: str | None = None
    ) -> None:
        """Write an Event some time. `series` names the Event object whose message this replaces."""
        message = message[:MESSAGE_CHARS]
        content = EventContent(
            about=about,
            type=event_type,
            reason=reason,
            message=message,
            series=message if series is None else series,
            at=api_time(),
        )
        with self._changed:
            if self._backlog.add(content, time.monotonic()):
                self._changed.notify()
                return
        self.dropped += 1
        if self.dropped % 1000 == 1:
            log.warning("dropped %d Events so far: they come faster than the API server takes them", self.dropped)

    def _run(self) -> None:
        while (taken := self._next()) is not None:
            series, content, emitted = taken
            try:
                count, written = self._write(content, series.count, emitted)
            except errors.ApiError as error:
                self.dropped += 1
                if self._refused.is_new(str(error.status), content.about.namespace):
                    lost = "event %s about %s was not written, and others may not be: %s"
                    log.warning(lost, content.reason, content.about.name, error)
                    with self._changed:  # namespaces come and go, and mostly one that goes refuses
                        self._refused.retain(self._backlog.namespaces)
            except Exception:
                self.dropped += 1
                log.exception("event %s about %s was not written", content.reason, content.about.name)
            else:
                self._refused.is_new("", content.about.namespace)
                with self._changed:
                    series.count = count
                    series.emitted -= written

    def _next(self) -> tuple[Series, EventContent, int] | None:
        """Wait for it; None: this thread is to end."""
        with self._changed:
            while not self._stopping:
                now = time.monotonic()
                due_in, pause = self._backlog.due_in(now), self._pace.wait(now)
                if due_in == 0 and pause == 0:
                    self._pace.spend()
                    break
                self._changed.wait(None if due_in is None else max(due_in, pause))
            if self._given_up or self._backlog.due_in(time.monotonic()) is None:
                return None
            series = self._backlog.take(time.monotonic())
            return series, series.content, series.emitted

    def _write(self, content: EventContent, count: int, emitted: int) -> tuple[int, int]:
        """The count as the API has it now, and how many of `emitted` are in it.

        One request where the Event is new or was written by this process, two where another process wrote it.
        """
        if count:
            try:
                self._renew(content, count=count + emitted)
            except errors.NotFound:
                pass  # the API keeps Events for an hour
            else:
                return count + emitted, emitted
        namespace = content.about.namespace or CLUSTER_SCOPED_NAMESPACE
        try:
            apply.create(self._api, f"/api/v1/namespaces/{namespace}/events", self._body(content, namespace, emitted))
        except errors.AlreadyExists:
            # Another process has written it: how often is known only now, so the next repeat raises the count.
            return int(self._renew(content).get("count") or 1), 0
        return emitted, emitted

    def _renew(self, content: EventContent, **more: int) -> dict[str, Any]:
        namespace = content.about.namespace or CLUSTER_SCOPED_NAMESPACE
        changed = {"lastTimestamp": content.at, "message": content.message, **more}
        return apply.merge_patch(self._api, f"/api/v1/namespaces/{namespace}/events/{_name(content)}", changed)

    def _body(self, content: EventContent, namespace: str, count: int) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": _name(content), "namespace": namespace},
            "involvedObject": content.about.as_json(),
            "type": content.type,
            "reason": content.reason,
            "message": content.message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
            "firstTimestamp": content.at,
            "lastTimestamp": content.at,
            "count": count,
        }


def _name(content: EventContent) -> str:
    """The same after a restart, so that the count goes on."""
    digest = hashlib.sha256("\0".join(content.key).encode()).hexdigest()[:16]
    return f"{content.about.name[: NAME_CHARS - 17].rstrip('-.')}.{digest}"
