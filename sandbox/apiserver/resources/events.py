"""Events have two faces: v1, in which they are stored, and events.k8s.io/v1, in which schedulers write them.

Comes in: an event of either form. Goes out: the same event in the other. Must never lose a field that both know.
"""

from __future__ import annotations

from typing import Final

from sandbox.apiserver.objects import Obj
from sandbox.apiserver.resources.resource import Conversion

# core v1 name -> events.k8s.io name; everything else is spelled the same
_RENAMED: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "count": "deprecatedCount",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
}
_TO_STORAGE: Final = {new: core for core, new in _RENAMED.items()}


def to_storage(event: Obj) -> Obj:
    return {**_renamed(event, _TO_STORAGE), "apiVersion": "v1"}


def from_storage(event: Obj) -> Obj:
    return {**_renamed(event, _RENAMED), "apiVersion": "events.k8s.io/v1"}


def _renamed(event: Obj, names: dict[str, str]) -> Obj:
    return {"apiVersion": "", **{names.get(name, name): value for name, value in event.items()}}


EVENTS_K8S_IO: Final = Conversion(to_storage=to_storage, from_storage=from_storage)
