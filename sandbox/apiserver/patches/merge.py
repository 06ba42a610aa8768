"""JSON merge patch (RFC 7386) and JSON patch (RFC 6902).

Comes in: the stored object and the patch. Goes out: the patched object, sharing what did not change. Lists are replaced
whole by a merge patch, list maps too. Must never know about kinds.
"""

from typing import Any

import jsonpatch
from jsonpointer import JsonPointerException

from sandbox.apiserver.errors import ApiError


def merge_patch(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif name not in merged or merged[name] != value:
            merged[name] = merge_patch(merged.get(name), value)
    return merged


def json_patch(target: Any, patch: list[Any]) -> Any:
    """Raises 422 where an operation, a `test` above all, does not fit the object."""
    try:
        return jsonpatch.JsonPatch(patch).apply(target)
    except (jsonpatch.JsonPatchException, JsonPointerException, TypeError, KeyError) as error:
        message = "the server rejected our request due to an error in our request"  # no more than this, so Kubernetes
        raise ApiError(422, "Invalid", message, details={}) from error
