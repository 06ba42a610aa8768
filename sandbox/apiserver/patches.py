"""Applies JSON patches, merge patches and strategic merge patches.

Takes the stored object and the patch, and returns the patched object. A strategic merge patch has the directives
`$patch`, `$retainKeys` and `$deleteFromPrimitiveList`; lists merge by the first of their keys in the order that is
stored, whatever `$setElementOrder` says, all others are replaced (node taints, tolerations). It must never be used for
custom resources: they have no merge keys.
"""

from typing import Any, Final

import jsonpatch
from jsonpointer import JsonPointerException

from sandbox.apiserver.errors import ApiError
from sandbox.apiserver.resources.models import LIST_KEYS, SETS


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


MERGE_KEYS: Final = {name: keys[0] for name, keys in LIST_KEYS.items() if isinstance(name, str)} | {"hostIPs": "ip"}
_DELETE, _RETAIN, _PATCH = "$deleteFromPrimitiveList/", "$retainKeys", "$patch"
_GONE: Final = object()


def strategic_merge(target: Any, patch: Any, field: str = "") -> Any:
    """The patched value of the field named `field`."""
    if isinstance(patch, dict):
        merged = _merge_object(target, patch)
        return {} if merged is _GONE and not field else merged
    if isinstance(patch, list):
        return _merge_list(target if isinstance(target, list) else [], patch, field)
    return patch


def _merge_object(target: Any, patch: dict[str, Any]) -> Any:
    directive = patch.get(_PATCH)
    if directive == "replace":
        return {name: value for name, value in patch.items() if name != _PATCH}
    if directive == "delete":
        return _GONE
    merged = dict(target) if isinstance(target, dict) else {}
    if _RETAIN in patch:
        merged = {name: value for name, value in merged.items() if name in patch[_RETAIN]}
    for name, value in patch.items():
        if name.startswith(_DELETE):
            field = name.removeprefix(_DELETE)
            merged[field] = [item for item in merged.get(field) or [] if item not in value]
        elif not name.startswith("$"):
            result = _GONE if value is None else strategic_merge(merged.get(name), value, name)
            if result is _GONE:
                merged.pop(name, None)
            else:
                merged[name] = result
    return merged


def _merge_list(target: list[Any], patch: list[Any], field: str) -> Any:
    if field in SETS:
        return [*target, *(item for item in patch if item not in target)]
    key = _merge_key(field, patch)
    if key is None or not all(isinstance(item, dict) for item in patch):
        return patch
    if any(item.get(_PATCH) == "replace" for item in patch):
        return [item for item in patch if _PATCH not in item]
    merged = list(target)
    for item in patch:
        place = next((n for n, stored in enumerate(merged) if stored.get(key) == item.get(key)), None)
        if item.get(_PATCH) == "delete":
            merged = [stored for stored in merged if stored.get(key) != item.get(key)]
        elif place is None:
            merged.append(strategic_merge({}, item))
        else:
            merged[place] = strategic_merge(merged[place], item)
    return merged


def _merge_key(field: str, items: list[Any]) -> str | None:
    """Ports mean two things: those of a container and those of a service."""
    if field == "ports":
        return "port" if any(isinstance(item, dict) and "port" in item for item in items) else "containerPort"
    return MERGE_KEYS.get(field)
