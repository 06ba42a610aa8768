"""Completes and checks Events: an Event lies in the namespace of what it is about."""

from collections.abc import Iterator
from typing import Final

from sandbox.apiserver.errors import FieldError, required, wrong
from sandbox.apiserver.objects import Obj, dig, meta

_LONGEST_NOTE_BYTES: Final = 1024
_NEEDED: Final = (
    ("reportingComponent", "reportingController"),
    ("reportingInstance", "reportingInstance"),
    ("action", "action"),
    ("reason", "reason"),
)


def prepare(event: Obj) -> Obj:
    """Fields that are always there, as Go structs have them, and that no manager owns."""
    always: Obj = {
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    }
    return {**event, **{name: value for name, value in always.items() if name not in event}}


def check(event: Obj, old: Obj | None) -> list[FieldError]:
    return list(_check_new(event)) if old is None else []


def _check_new(event: Obj) -> Iterator[FieldError]:
    namespace, about = meta(event).get("namespace", ""), dig(event, "involvedObject", "namespace") or ""
    has_time = bool(event.get("eventTime"))
    cluster_wide = namespace in ("default", "kube-system") if has_time else namespace == "default"
    if (not about and not cluster_wide) or (about and not has_time and about != namespace):
        yield wrong("involvedObject.namespace", about, "does not match event.namespace")
    if not has_time:
        return
    for field, name in _NEEDED:
        if not event.get(field):
            yield required(name)
    if len(str(event.get("message", "")).encode()) > _LONGEST_NOTE_BYTES:
        yield wrong("message", "", f"can have at most {_LONGEST_NOTE_BYTES} characters")
