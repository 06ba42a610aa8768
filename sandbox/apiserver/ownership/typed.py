"""Checks that an applied configuration has the form that its schema declares.

Takes the configuration of a server-side apply and returns the sentences of structured-merge-diff about undeclared
fields and duplicate list items. Wrong types and missing keys are left to validation. Must never check values.
"""

from collections.abc import Iterator
from typing import Any

from sandbox.apiserver.ownership.fieldsets import describe, item_element
from sandbox.apiserver.schema.structural import Schema


def typed_errors(config: Any, schema: Schema | None) -> list[str]:
    return list(_walk(config, schema, ())) if schema is not None else []


def _walk(value: Any, schema: Schema, path: tuple[str, ...]) -> Iterator[str]:
    if schema.preserve:
        return
    if isinstance(value, dict) and schema.type == "object":
        for name, member in sorted(value.items()):
            sub = schema.field(name)
            if sub is None:
                yield f"{describe((*path, f'f:{name}'))}: field not declared in schema"
            else:
                yield from _walk(member, sub, (*path, f"f:{name}"))
    elif isinstance(value, list) and schema.items is not None:
        seen: set[str] = set()
        for index, item in enumerate(value):
            element = f"i:{index}" if schema.list_type == "atomic" else item_element(item, schema)
            if element in seen:
                yield f"{describe(path)}: duplicate entries for key {describe((element,))}"
            seen.add(element)
            yield from _walk(item, schema.items, (*path, element))
