"""Computes the JSON patch that puts one taint on a Node, or takes it off.

Takes the Node as it was read, returns operations; none where nothing is to be done. The first one tests that the Node
is unchanged, because positions in the list move when another client writes, and a list that was sent whole would drop
what others add meanwhile. Sends nothing.
"""

from collections.abc import Mapping
from typing import Any


def has_taint(node: Mapping[str, Any], key: str) -> bool:
    return any(taint.get("key") == key for taint in _taints(node))


def taint_patch(node: Mapping[str, Any], taint: Mapping[str, str], *, present: bool) -> list[dict[str, Any]]:
    """A taint of this key counts, whatever its effect; all of them are taken off."""
    taints = _taints(node)
    places = [n for n, found in enumerate(taints) if found.get("key") == taint["key"]]
    if bool(places) == present:
        return []
    unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": node["metadata"]["resourceVersion"]}
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
