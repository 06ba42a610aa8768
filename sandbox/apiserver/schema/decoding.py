"""Builtin kinds are decoded into Go structs: a value of the wrong type is 400, not 422.

Comes in: an object and its schema. Goes out: sentences of Go's JSON decoder, one per wrong value. Must never judge
values of the right type.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from sandbox.apiserver.objects import json_type
from sandbox.apiserver.schema.structural import Schema

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
