"""Builtin kinds are decoded into Go structs: a value of the wrong type is 400, not 422.

Comes in: an object and its schema. Goes out: sentences of Go's JSON decoder, one per wrong value. Must never judge
values of the right type.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from sandbox.apiserver.schema.structural import Schema

_GO_TYPES: Final = {"string": "string", "integer": "int32", "boolean": "bool", "array": "[]interface {}"}


def decode_errors(value: Any, schema: Schema, trusted: Any = None) -> list[str]:
    return list(_walk(value, schema, "", trusted))


def _walk(value: Any, schema: Schema, path: str, trusted: Any) -> Iterator[str]:
    if value is None or value is trusted:
        return
    if schema.quantity:
        if isinstance(value, (dict, list, bool)):
            yield f"unable to parse quantity's suffix at {path}"
        return
    wanted, found = schema.type, _json_type(value)
    if wanted and found != wanted and not (wanted == "number" and found == "integer"):
        shown = "number" if found == "integer" else found
        go_type = _GO_TYPES.get(wanted, "map[string]interface {}" if schema.additional else "struct")
        yield f"json: cannot unmarshal {shown} into Go struct field .{path} of type {go_type}"
        return
    if isinstance(value, dict):
        before = trusted if isinstance(trusted, dict) else {}
        for name, member in value.items():
            sub = schema.field(name)
            if sub is not None:
                yield from _walk(member, sub, f"{path}.{name}" if path else name, before.get(name))
    elif isinstance(value, list) and schema.items is not None:
        for item in value:
            yield from _walk(item, schema.items, path, None)


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    for kind, name in ((str, "string"), (int, "integer"), (float, "number"), (dict, "object")):
        if isinstance(value, kind):
            return name
    return "array"
