"""Reads and writes of single objects, at any path: get, create, replace, delete, apply and the two patches.

In goes a path such as `/api/v1/namespaces/a/pods/b` and a JSON object, out comes the object as the server then holds
it. Raw JSON on purpose: the generated patch methods of client 37 guess the patch type from the group and return None
where an apply creates the object. Raises `kube.errors`; never retries.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from kubernetes.client import ApiClient

from kube.transport import DEFAULT_TIMEOUTS, Query, Timeouts, request

Object = dict[str, Any]


def get(api: ApiClient, path: str, *, query: Query | None = None, timeouts: Timeouts = DEFAULT_TIMEOUTS) -> Object:
    return _decoded(request(api, "GET", path, query=query, timeouts=timeouts))


def create(
    api: ApiClient,
    path: str,
    body: Mapping[str, Any],
    *,
    manager: str | None = None,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> Object:
    """POST to a collection, or to a subresource such as `…/pods/b/binding`."""
    query = {"fieldManager": manager} if manager else None
    return _decoded(request(api, "POST", path, query=query, body=dict(body), timeouts=timeouts))


def replace(
    api: ApiClient,
    path: str,
    body: Mapping[str, Any],
    *,
    manager: str | None = None,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> Object:
    """PUT; with metadata.resourceVersion in the body it is refused if somebody else wrote in between."""
    query = {"fieldManager": manager} if manager else None
    return _decoded(request(api, "PUT", path, query=query, body=dict(body), timeouts=timeouts))


def delete(
    api: ApiClient,
    path: str,
    *,
    uid: str | None = None,
    resource_version: str | None = None,
    grace_seconds: int | None = None,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> Object:
    """Delete, only if uid and resourceVersion are still these (`Conflict` otherwise)."""
    preconditions = {
        name: value for name, value in (("uid", uid), ("resourceVersion", resource_version)) if value is not None
    }
    options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if preconditions:
        options["preconditions"] = preconditions
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    return _decoded(request(api, "DELETE", path, body=options, timeouts=timeouts))


def apply(
    api: ApiClient,
    path: str,
    body: Mapping[str, Any],
    *,
    manager: str,
    force: bool = False,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> Object:
    """Server-side apply. Creates what is not there: send metadata.uid where that must not happen."""
    return _patch(
        api, path, dict(body), "apply-patch+yaml", {"fieldManager": manager, "force": force}, timeouts=timeouts
    )


def apply_status(
    api: ApiClient,
    path: str,
    body: Mapping[str, Any],
    *,
    manager: str,
    force: bool = True,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> Object:
    """Server-side apply of the status; `NotFound` where the object is gone."""
    return apply(api, f"{path}/status", body, manager=manager, force=force, timeouts=timeouts)


def json_patch(
    api: ApiClient,
    path: str,
    operations: Sequence[Mapping[str, Any]],
    *,
    manager: str | None = None,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> Object:
    """RFC 6902; a failed `test` operation is `Invalid`."""
    query = {"fieldManager": manager} if manager else {}
    return _patch(api, path, [dict(o) for o in operations], "json-patch+json", query, timeouts=timeouts)


def merge_patch(
    api: ApiClient,
    path: str,
    body: Mapping[str, Any],
    *,
    manager: str | None = None,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> Object:
    """RFC 7386: null removes, lists are replaced whole."""
    query = {"fieldManager": manager} if manager else {}
    return _patch(api, path, dict(body), "merge-patch+json", query, timeouts=timeouts)


def _patch(api: ApiClient, path: str, body: Any, patch_type: str, query: Query, *, timeouts: Timeouts) -> Object:
    answer = request(
        api, "PATCH", path, query=query, body=body, content_type=f"application/{patch_type}", timeouts=timeouts
    )
    return _decoded(answer)


def _decoded(answer: bytes) -> Object:
    value: Object = json.loads(answer) if answer else {}
    return value
