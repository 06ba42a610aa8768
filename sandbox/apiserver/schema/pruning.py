"""Bring an object into the form of its schema: unknown fields out, defaults in.

Comes in: an object as a client sent it. Goes out: the object as it would be stored, and the paths of what was dropped
(for fieldValidation). Parts that are already stored (`is` the old object's) are trusted and shared. Must never refuse.
"""

import copy
from datetime import datetime
from typing import Any

from sandbox.apiserver.objects import MISSING, micro_timestamp, timestamp
from sandbox.apiserver.schema.structural import GO_STRUCT, Schema


class Pruner:
    """One pass over one object; `unknown` collects the dropped paths."""

    def __init__(self, *, keep_nulls: bool = False) -> None:
        """`keep_nulls`: null stays null where the schema has none, as in a merge of server-side apply."""
        self.unknown: list[str] = []
        self._keep_nulls = keep_nulls

    def conform(self, value: Any, schema: Schema, path: str = "", trusted: Any = MISSING) -> Any:
        """The value as it would be stored. What `is` `trusted` was stored before and is taken as it is."""
        if value is trusted:
            return value
        if isinstance(value, dict):
            return self._object(value, schema, path, trusted)
        if isinstance(value, list) and schema.items is not None:
            return self._list(value, schema.items, path)
        return _scalar(value, schema)

    def _object(self, value: dict[str, Any], schema: Schema, path: str, trusted: Any) -> Any:
        known = trusted if isinstance(trusted, dict) else {}
        keep_nulls = self._keep_nulls and GO_STRUCT not in schema.source
        stored: dict[str, Any] = {}
        for name, member in value.items():
            sub = schema.field(name)
            if sub is None:
                if schema.preserve:
                    stored[name] = member
                else:
                    self.unknown.append(_join(path, name))
                continue
            if member is None and not sub.nullable and not (keep_nulls and sub.default is MISSING):
                continue  # null where the schema has none counts as absent
            if sub.omit_empty and member in ([], {}):
                continue
            stored[name] = self.conform(member, sub, _join(path, name), known.get(name, MISSING))
        for name, sub in schema.properties.items():
            if name not in stored and sub.default is not MISSING:
                stored[name] = self.conform(copy.deepcopy(sub.default), sub, _join(path, name))
        return stored

    def _list(self, value: list[Any], items: Schema, path: str) -> list[Any]:
        return [self.conform(member, items, f"{path}[{index}]") for index, member in enumerate(value)]


def _scalar(value: Any, schema: Schema) -> Any:
    """Builtin kinds only: quantities are text, times have one spelling."""
    if schema.quantity and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value) if isinstance(value, int) else f"{round(value * 1000)}m"
    form = schema.source.get("format")
    if form in ("go-time", "go-micro-time") and isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            return value  # validation says what is wrong with it
        return timestamp(moment) if form == "go-time" else micro_timestamp(moment)
    return value


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
