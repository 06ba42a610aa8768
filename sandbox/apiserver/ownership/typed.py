"""Checks that an applied configuration has the form that its schema declares.

Takes the configuration of a server-side apply and returns the sentences of structured-merge-diff about undeclared
fields, wrong types and list items that cannot be told apart. Must never check values.
"""

from collections.abc import Iterator
from typing import Any

from sandbox.apiserver.objects import MISSING
from sandbox.apiserver.ownership.fieldsets import describe, item_element
from sandbox.apiserver.schema.structural import Schema


def typed_errors(config: Any, schema: Schema | None) -> list[str]:
    return list(_walk(config, schema, ())) if schema is not None else []


def _walk(value: Any, schema: Schema, path: tuple[str, ...]) -> Iterator[str]:
    if value is None or schema.preserve:
        return
    if isinstance(value, dict) and schema.type == "object":
        for name, member in sorted(value.items()):
            sub = schema.field(name)
            if sub is None:
                yield f"{describe((*path, f'f:{name}'))}: field not declared in schema"
            else:
                yield from _walk(member, sub, (*path, f"f:{name}"))
    elif isinstance(value, list) and schema.type == "array" and schema.items is not None:
        yield from _items(value, schema, schema.items, path)
    else:
        yield from _scalar(value, schema, path)


def _items(value: list[Any], schema: Schema, items: Schema, path: tuple[str, ...]) -> Iterator[str]:
    seen: set[str] = set()
    for index, item in enumerate(value):
        element = f"i:{index}"
        if schema.list_type != "atomic":
            if schema.list_keys and all(_lacks(item, key, items) for key in schema.list_keys):
                complaint = "associative list with keys has an element that omits all key fields"
                listed = " ".join(f'"{key}"' for key in schema.list_keys)
                why = f"{complaint} [{listed}] (and doesn't have default values for any key fields)"
                yield f"{describe(path)}: element {index}: {why}"
                continue
            element = item_element(item, schema)
            if element in seen:
                yield f"{describe(path)}: duplicate entries for key {describe((element,))}"
            seen.add(element)
        yield from _walk(item, items, (*path, element))


def _lacks(item: Any, key: str, items: Schema) -> bool:
    sub = items.field(key)
    return (not isinstance(item, dict) or key not in item) and (sub is None or sub.default is MISSING)


def _scalar(value: Any, schema: Schema, path: tuple[str, ...]) -> Iterator[str]:
    if schema.int_or_string or schema.quantity or not schema.type:
        return
    wanted = ""
    if schema.type == "string" and not isinstance(value, str):
        wanted = "string"
    elif schema.type == "boolean" and not isinstance(value, bool):
        wanted = "boolean"
    elif schema.type in ("integer", "number") and (isinstance(value, bool) or not isinstance(value, (int, float))):
        wanted = "numeric (int or float)"
    elif schema.type in ("object", "array"):
        wanted = "map" if schema.type == "object" else "list"
    if wanted:
        shown = f"&{{{value}}}" if isinstance(value, str) else f"&value.valueUnstructured{{Value:{value!r}}}"
        yield f"{describe(path)}: expected {wanted}, got {shown}"
