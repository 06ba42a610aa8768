"""Columns of events, in the form in which they are stored (core v1). `-o wide` shows no more than these."""

from datetime import UTC, datetime
from typing import Final

from sandbox.apiserver.objects import Obj, dig
from sandbox.apiserver.tables.columns import Column, age


def _last_seen(event: Obj) -> str:
    stamps = (
        dig(event, "series", "lastObservedTime"),
        *map(event.get, ("lastTimestamp", "firstTimestamp", "eventTime")),
    )
    return age(next(filter(None, stamps), None), datetime.now(UTC))


def _target(event: Obj) -> str:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


COLUMNS: Final = (
    Column(name="Last Seen", cell=_last_seen),
    Column(name="Type", cell=lambda event: event.get("type", "")),
    Column(name="Reason", cell=lambda event: event.get("reason", "")),
    Column(name="Object", cell=_target),
    Column(name="Message", cell=lambda event: str(event.get("message", "")).strip()),
)
