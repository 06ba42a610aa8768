"""Computes JSON patches: one that puts a taint on a Node or takes it off, one that sets single labels and annotations.

Takes the object as it was read, returns operations; none where nothing is to be done. The first one tests that the
object is unchanged: positions in a list move when another client writes, and what another client wrote meanwhile is
never overwritten unread. Sends nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Wanted = Mapping[str, str | None]
"""None: the key is to be absent."""


def has_taint(node: Mapping[str, Any], key: str) -> bool:
    return any(taint.get("key") == key for taint in _taints(node))


def taint_patch(node: Mapping[str, Any], taint: Mapping[str, str], *, present: bool) -> list[dict[str, Any]]:
    """A taint of this key counts, whatever its effect; all of them are taken off."""
    taints = _taints(node)
    places = [n for n, found in enumerate(taints) if found.get("key") == taint["key"]]
    if bool(places) == present:
        return []
    unchanged = _unchanged(node)
    if not present:
        # From the back, so that the positions stay right.
        return [unchanged, *({"op": "remove", "path": f"/spec/taints/{n}"} for n in reversed(places))]
    new = dict(taint)
    if taints:
        return [unchanged, {"op": "add", "path": "/spec/taints/-", "value": new}]
    if "spec" not in node:
        return [unchanged, {"op": "add", "path": "/spec", "value": {"taints": [new]}}]
    return [unchanged, {"op": "add", "path": "/spec/taints", "value": [new]}]


def _taints(node: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return (node.get("spec") or {}).get("taints") or []


def metadata_patch(raw: Mapping[str, Any], *, labels: Wanted, annotations: Wanted) -> list[dict[str, Any]]:
    """All of it in one patch: there is no moment at which only a part has been written."""
    metadata = raw["metadata"]
    operations = [
        *_operations("labels", metadata.get("labels"), labels),
        *_operations("annotations", metadata.get("annotations"), annotations),
    ]
    return [_unchanged(raw), *operations] if operations else []


def _operations(field: str, there: Mapping[str, str] | None, wanted: Wanted) -> Iterator[dict[str, Any]]:
    found = there or {}
    new = {key: value for key, value in wanted.items() if value is not None and found.get(key) != value}
    if new and not found:
        yield {"op": "add", "path": f"/metadata/{field}", "value": dict(sorted(new.items()))}
        return
    for key in sorted(wanted):
        path = f"/metadata/{field}/{key.replace('~', '~0').replace('/', '~1')}"
        if key in new:
            yield {"op": "add", "path": path, "value": new[key]}
        elif wanted[key] is None and key in found:
            yield {"op": "remove", "path": path}


def _unchanged(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {"op": "test", "path": "/metadata/resourceVersion", "value": raw["metadata"]["resourceVersion"]}
