"""Defines the columns of the builtin kinds, as `kubectl get` shows them on a real cluster.

Takes a kind and returns its columns; kinds without columns of their own show name and age. Cells are functions of the
stored object. Must never fail on an object that lacks fields.
"""

from collections.abc import Callable
from typing import Any, Final

from sandbox.apiserver.objects import Obj, dig
from sandbox.apiserver.tables import events, nodes, pods
from sandbox.apiserver.tables.columns import AGE, NAME, Column

NONE: Final = "<none>"


def _get(*path: str, missing: Any = NONE) -> Callable[[Obj], Any]:
    def cell(obj: Obj) -> Any:
        value = dig(obj, *path)
        return missing if value is None or value == "" else value

    return cell


def _count(name: str, *path: str) -> Column:
    return Column(name=name, type="integer", cell=_get(*path, missing=0))


def _size(*fields: str) -> Callable[[Obj], int]:
    return lambda obj: sum(len(obj.get(field) or {}) for field in fields)


_CREATED: Final = Column(name="Created At", type="date", format="date-time", cell=_get("metadata", "creationTimestamp"))

COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    "ConfigMap": (NAME, Column(name="Data", type="integer", cell=_size("data", "binaryData")), AGE),
    "CustomResourceDefinition": (NAME, _CREATED),
    "Event": events.COLUMNS,
    "Lease": (NAME, Column(name="Holder", cell=_get("spec", "holderIdentity", missing="")), AGE),
    "Namespace": (NAME, Column(name="Status", cell=_get("status", "phase", missing="")), AGE),
    "Node": nodes.COLUMNS,
    "Pod": pods.COLUMNS,
    "PriorityClass": (
        NAME,
        Column(name="Value", type="integer", cell=_get("value", missing=0)),
        Column(name="Global-Default", type="boolean", cell=_get("globalDefault", missing=False)),
        AGE,
        Column(name="PreemptionPolicy", cell=_get("preemptionPolicy", missing="PreemptLowerPriority")),
    ),
}


def columns_of(kind: str) -> tuple[Column, ...]:
    return COLUMNS.get(kind, (NAME, AGE))
