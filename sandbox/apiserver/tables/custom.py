"""Columns of custom resources: additionalPrinterColumns, or just the age.

Comes in: the printer columns of a CRD version. Goes out: table columns. A value that is absent or of another type than
the column's prints as blank. Must never fail on an object.
"""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from sandbox.apiserver.objects import Obj, meta
from sandbox.apiserver.resources.column import Column
from sandbox.apiserver.tables.ages import INVALID, age
from sandbox.apiserver.tables.jsonpath import Finder, compile_path

NAME_DESCRIPTION = (
    "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a "
    "client to request the generation of an appropriate name automatically. Name is primarily intended for creation "
    "idempotence and configuration definition. Cannot be updated. More info: "
    "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
)
AGE_DESCRIPTION = (
    "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed "
    "to be set in happens-before order across separate operations. Clients may not set this value. It is represented "
    "in RFC3339 form and is in UTC."
)


def object_age(obj: Obj) -> str:
    return age(meta(obj).get("creationTimestamp"), datetime.now(UTC))


NAME = Column(name="Name", format="name", description=NAME_DESCRIPTION, cell=lambda obj: meta(obj).get("name", ""))
AGE = Column(name="Age", description=AGE_DESCRIPTION, cell=object_age)


def columns_of(printer_columns: Iterable[Obj] | None) -> tuple[Column, ...]:
    if not printer_columns:
        return (NAME, AGE)
    return (NAME, *(_column(column) for column in printer_columns))


def _column(column: Obj) -> Column:
    kind = column.get("type", "string")
    return Column(
        name=column["name"],
        type=kind,
        format=column.get("format", ""),
        description=column.get("description")
        or f"Custom resource definition column (in JSONPath format): {column['jsonPath']}",
        priority=column.get("priority", 0),
        cell=_cell(compile_path(column["jsonPath"]), kind),
    )


def _cell(find: Finder, kind: str) -> Callable[[Obj], Any]:
    def cell(obj: Obj) -> Any:
        found = find(obj)
        return _shown(found[0], kind) if found and found[0] is not None else None

    return cell


def _shown(value: Any, kind: str) -> Any:
    if kind == "string":
        if isinstance(value, bool):
            return str(value).lower()
        return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    if kind == "date":
        return age(value, datetime.now(UTC)) if isinstance(value, str) else INVALID
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if kind == "integer" else value
