"""Columns of the builtin kinds, as `kubectl get` shows them on a real cluster.

Comes in: a kind. Goes out: its columns (cells are functions of the object). Kinds without columns of their own show name
and age. Must never fail on an object that lacks fields.
"""

from __future__ import annotations

from typing import Any, Final

from sandbox.apiserver.objects import Obj, dig
from sandbox.apiserver.resources.column import Column
from sandbox.apiserver.tables.custom import AGE, NAME

NONE: Final = "<none>"


def _get(*path: str, missing: Any = NONE) -> Any:
    def cell(obj: Obj) -> Any:
        value = dig(obj, *path)
        return missing if value is None or value == "" else value

    return cell


COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    "Namespace": (NAME, Column(name="Status", cell=_get("status", "phase")), AGE),
}


def columns_of(kind: str) -> tuple[Column, ...]:
    return COLUMNS.get(kind, (NAME, AGE))
