"""Reads and writes single objects at any path: get, create, replace, delete, apply and the two patches.

Takes a path such as `/api/v1/namespaces/a/pods/b` and a JSON object, returns the object as the server then holds it.
Sends raw JSON, because the generated patch methods of client 37 guess the patch type from the group and return None
where an apply creates the object. Raises `kube.errors`; never retries.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from kubernetes.client import ApiClient

from kube.transport import Options, Query, Timeouts, request

Object = dict[str, Any]
Body = Mapping[str, Any]
ONE_OBJECT = Timeouts(read_seconds=10.0)
"""A program that must end waits for its requests under way, and has 30 s from the signal to its end."""


def get(api: ApiClient, path: str, *, query: Query | None = None, timeouts: Timeouts = ONE_OBJECT) -> Object:
    return _send(api, "GET", path, query=query, timeouts=timeouts)


def create(
    api: ApiClient, path: str, body: Body, *, manager: str | None = None, timeouts: Timeouts = ONE_OBJECT
) -> Object:
    """POST to a collection, or to a subresource such as `…/pods/b/binding`."""
    return _send(api, "POST", path, body=dict(body), query=_by(manager), timeouts=timeouts)


def replace(
    api: ApiClient, path: str, body: Body, *, manager: str | None = None, timeouts: Timeouts = ONE_OBJECT
) -> Object:
    """PUT; with metadata.resourceVersion in the body it is refused if another client wrote in between."""
    return _send(api, "PUT", path, body=dict(body), query=_by(manager), timeouts=timeouts)


def delete(
    api: ApiClient,
    path: str,
    *,
    uid: str | None = None,
    resource_version: str | None = None,
    grace_seconds: int | None = None,
) -> Object:
    """Delete, only if uid and resourceVersion are still these (`Conflict` otherwise)."""
    only_if = {
        name: value for name, value in (("uid", uid), ("resourceVersion", resource_version)) if value is not None
    }
    options: Object = {"apiVersion": "v1", "kind": "DeleteOptions"}
    if only_if:
        options["preconditions"] = only_if
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    return _send(api, "DELETE", path, body=options, timeouts=ONE_OBJECT)


def apply(
    api: ApiClient, path: str, body: Body, *, manager: str, force: bool = False, timeouts: Timeouts = ONE_OBJECT
) -> Object:
    """Server-side apply. Creates what is not there: send metadata.uid where that must not happen."""
    query: Query = {"fieldManager": manager, "force": force}
    return _patch(api, path, "apply-patch+yaml", dict(body), query=query, timeouts=timeouts)


def apply_status(
    api: ApiClient, path: str, body: Body, *, manager: str, force: bool = True, timeouts: Timeouts = ONE_OBJECT
) -> Object:
    """Server-side apply of the status; `NotFound` where the object is gone."""
    return apply(api, f"{path}/status", body, manager=manager, force=force, timeouts=timeouts)


def json_patch(
    api: ApiClient,
    path: str,
    operations: Sequence[Body],
    *,
    manager: str | None = None,
    timeouts: Timeouts = ONE_OBJECT,
) -> Object:
    """RFC 6902; a failed `test` operation is `Invalid`."""
    return _patch(api, path, "json-patch+json", [dict(o) for o in operations], query=_by(manager), timeouts=timeouts)


def merge_patch(
    api: ApiClient,
    path: str,
    body: Body,
    *,
    manager: str | None = None,
    timeouts: Timeouts = ONE_OBJECT,
    dry_run: bool = False,
) -> Object:
    """RFC 7386: null removes, lists are replaced whole. A dry run passes admission, and nothing is stored."""
    query = {**_by(manager), "dryRun": "All"} if dry_run else _by(manager)
    return _patch(api, path, "merge-patch+json", dict(body), query=query, timeouts=timeouts)


def _patch(api: ApiClient, path: str, kind: str, body: Any, *, query: Query, timeouts: Timeouts) -> Object:
    kind = f"application/{kind}"
    return _send(api, "PATCH", path, body=body, content_type=kind, query=query, timeouts=timeouts)


def _by(manager: str | None) -> Query:
    return {"fieldManager": manager} if manager else {}


def _send(api: ApiClient, method: str, path: str, **options: Unpack[Options]) -> Object:
    answer = request(api, method, path, **options)
    value: Object = json.loads(answer) if answer else {}
    return value
