"""Writes times as the API does: RFC 3339 in UTC, to the second (Time) or to the microsecond (MicroTime).

Takes a moment, by default now; returns text. Parses nothing.
"""

from datetime import UTC, datetime


def api_time(moment: datetime | None = None) -> str:
    return (moment or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(moment: datetime | None = None) -> str:
    return (moment or datetime.now(UTC)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
