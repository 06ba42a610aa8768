"""Columns of events, in the form in which they are stored (core v1)."""

from datetime import UTC, datetime
from typing import Final

from sandbox.apiserver.objects import Obj, dig, meta
from sandbox.apiserver.tables.columns import Column, age


def _since(stamp: str | None) -> str:
    return age(stamp, datetime.now(UTC))


def _first(event: Obj) -> str | None:
    stamp: str | None = event.get("firstTimestamp") or event.get("eventTime")
    return stamp


def _last(event: Obj) -> str | None:
    return dig(event, "series", "lastObservedTime") or event.get("lastTimestamp") or _first(event)


def _last_seen(event: Obj) -> str:
    return _since(_last(event))


def _target(event: Obj) -> str:
    about = event.get("involvedObject") or {}
    kind = str(about.get("kind", "")).lower()
    return f"{kind}/{about['name']}" if about.get("name") else kind


def _source(event: Obj) -> str:
    component = dig(event, "source", "component") or event.get("reportingComponent") or ""
    host = dig(event, "source", "host") or event.get("reportingInstance") or ""
    return ", ".join(part for part in (component, host) if part)


def _count(event: Obj) -> int:
    return int(dig(event, "series", "count") or event.get("count") or 1)


COLUMNS: Final = (
    Column(name="Last Seen", cell=_last_seen),
    Column(name="Type", cell=lambda event: event.get("type", "")),
    Column(name="Reason", cell=lambda event: event.get("reason", "")),
    Column(name="Object", cell=_target),
    Column(name="Subobject", priority=1, cell=lambda event: dig(event, "involvedObject", "fieldPath") or ""),
    Column(name="Source", priority=1, cell=_source),
    Column(name="Message", cell=lambda event: str(event.get("message", "")).strip()),
    Column(name="First Seen", priority=1, cell=lambda event: _since(_first(event))),
    Column(name="Count", type="integer", priority=1, cell=_count),
    Column(name="Name", format="name", priority=1, cell=lambda event: meta(event).get("name", "")),
)
