"""Brings an object into the form of its schema: types checked, unknown fields removed, defaults added.

`decode_errors` names values of the wrong type in a builtin kind, which is 400 and not 422. `Pruner` returns the object
as it would be stored, and the paths of what was dropped (for fieldValidation). Parts that are already stored (`is` the
old object's) are trusted and shared. Must never judge values of the right type.
"""

import copy
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from kube.timestamps import api_time, micro_time
from sandbox.apiserver.objects import MISSING, json_type
from sandbox.apiserver.schema.structural import GO_STRUCT, Schema

_MICRO_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")


def decode_errors(value: Any, schema: Schema, trusted: Any = None) -> list[str]:
    return list(_walk(value, schema, "", trusted))


def _walk(value: Any, schema: Schema, path: str, trusted: Any) -> Iterator[str]:
    if value is None or value is trusted:
        return
    if schema.quantity:
        if isinstance(value, (dict, list, bool)):
            yield "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        return
    wanted, found = schema.type, json_type(value)
    if wanted and found != wanted and not (wanted == "number" and found == "integer"):
        shown = "number" if found == "integer" else found
        yield f"json: cannot unmarshal {shown} into Go struct field {path} of type {wanted}"
    elif isinstance(value, dict):
        before = trusted if isinstance(trusted, dict) else {}
        for name, member in value.items():
            sub = schema.field(name)
            if sub is not None:
                yield from _walk(member, sub, f"{path}.{name}" if path else name, before.get(name))
    elif isinstance(value, list) and schema.items is not None:
        for item in value:
            yield from _walk(item, schema.items, path, None)
    elif isinstance(value, str):
        yield from _time(value, schema)


def _time(value: str, schema: Schema) -> Iterator[str]:
    form = schema.source.get("format")
    if form == "go-micro-time" and not _MICRO_TIME.fullmatch(value):
        yield f'parsing time "{value}" as "2006-01-02T15:04:05.000000Z07:00": cannot parse "{value}"'
    elif form == "go-time" and not _TIME.fullmatch(value):
        yield f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}"'


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
            return value  # validation reports what is wrong with it
        return api_time(moment) if form == "go-time" else micro_time(moment)
    return value


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
