"""Defines the columns of the builtin kinds, as `kubectl get` shows them on a real cluster.

Takes a kind and returns its columns; kinds without columns of their own show name and age. Cells are functions of the
stored object. Must never fail on an object that lacks fields.
"""

from collections.abc import Callable
from typing import Any, Final

from sandbox.apiserver.objects import Obj, dig
from sandbox.apiserver.tables import events, nodes, pods
from sandbox.apiserver.tables.columns import AGE, NAME, Column


def _get(*path: str) -> Callable[[Obj], Any]:
    return lambda obj: dig(obj, *path) or ""


COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    "Event": events.COLUMNS,
    "Lease": (NAME, Column(name="Holder", cell=_get("spec", "holderIdentity")), AGE),
    "Namespace": (NAME, Column(name="Status", cell=_get("status", "phase")), AGE),
    "Node": nodes.COLUMNS,
    "Pod": pods.COLUMNS,
}


def columns_of(kind: str) -> tuple[Column, ...]:
    return COLUMNS.get(kind, (NAME, AGE))
