"""Nodes as the API server completes and judges them."""

from collections.abc import Iterator
from typing import Final

from sandbox.apiserver.errors import FieldError, not_supported, wrong
from sandbox.apiserver.objects import Obj, dig, mappings

_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def default(node: Obj) -> Obj:
    """Allocatable starts as capacity."""
    status = node.get("status") or {}
    if status.get("capacity") and "allocatable" not in status:
        return {**node, "status": {**status, "allocatable": status["capacity"]}}
    return node


def check(node: Obj, _old: Obj | None) -> list[FieldError]:
    return list(_check_taints(node))


def _check_taints(node: Obj) -> Iterator[FieldError]:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(mappings(dig(node, "spec", "taints"))):
        path = f"metadata.taints[{index}]"  # as in Kubernetes, though they are in spec
        key, effect = taint.get("key", ""), taint.get("effect", "")
        if not key:
            yield wrong(f"{path}.key", key, "name part must be non-empty")
        if effect not in _EFFECTS:
            yield not_supported(f"{path}.effect", effect, _EFFECTS)
        if (key, effect) in seen:
            yield wrong(path, taint, "taints must be unique by key and effect pair", "Duplicate")
        seen.add((key, effect))
