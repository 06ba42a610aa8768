"""POST, PUT, PATCH and DELETE of objects.

Comes in: a request and its target. Goes out: a reply. Resources that are stored in another form (events.k8s.io) are
converted here, so that the lifecycle knows stored forms only.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from sandbox.apiserver.admission import events
from sandbox.apiserver.api.representation import one
from sandbox.apiserver.api.requests import (
    Reply,
    Request,
    decode_body,
    delete_options,
    form_of,
    json_reply,
    write_options,
)
from sandbox.apiserver.errors import ApiError, bad_request, invalid, method_not_allowed, unsupported_media_type
from sandbox.apiserver.lifecycle.bind import bind, evict
from sandbox.apiserver.lifecycle.context import Cluster, Target, WriteOptions, as_served
from sandbox.apiserver.lifecycle.create import create
from sandbox.apiserver.lifecycle.delete import Deletion, delete
from sandbox.apiserver.lifecycle.patch import JSON_PATCH, patch
from sandbox.apiserver.lifecycle.update import replace as replace_object
from sandbox.apiserver.objects import Obj, encode, meta
from sandbox.apiserver.resources.resource import Resource
from sandbox.apiserver.storage.selectors import selector

WORKLOAD_GROUPS = ("apps", "batch")
NO_CONTROLLER = "No controller acts on this {kind} in the sandbox. Create Pods, or use a real cluster."


def write(cluster: Cluster, request: Request, target: Target) -> Reply:
    method = request.method
    if method == "POST":
        return _post(cluster, request, target)
    if target.subresource and method == "DELETE":
        raise method_not_allowed()
    if method == "DELETE":
        return _delete(cluster, request, target) if target.name else _delete_collection(cluster, request, target)
    if method not in ("PUT", "PATCH") or target.subresource in ("binding", "eviction"):
        raise method_not_allowed()
    if not target.name:
        raise bad_request("name must be provided")
    return _put(cluster, request, target) if method == "PUT" else _patch(cluster, request, target)


def _stored(cluster: Cluster, target: Target) -> Target:
    """The target in the form in which it is stored."""
    if target.resource.conversion is None:
        return target
    return replace(target, resource=cluster.resource(target.resource.stored_as, "v1", target.resource.plural))


def _converted(resource: Resource, body: Any) -> Any:
    return resource.conversion.to_storage(body) if resource.conversion and isinstance(body, dict) else body


def _answer(request: Request, resource: Resource, code: int, obj: Obj, options: WriteOptions) -> Reply:
    shown = one(resource, obj, form_of(request.accept), request.query.get("includeObject") or "Metadata")
    idle = [NO_CONTROLLER.format(kind=resource.kind)] if code == 201 and resource.group in WORKLOAD_GROUPS else []
    return json_reply(code, shown, [*options.warnings, *idle])


def _post(cluster: Cluster, request: Request, target: Target) -> Reply:
    options = write_options(request, "CreateOptions")
    body = decode_body(request)
    if target.subresource == "binding":
        return json_reply(201, bind(cluster, target, body, options))
    if target.subresource == "eviction":
        return json_reply(201, evict(cluster, target, body, options))
    if target.name:
        raise method_not_allowed()
    stored = _converted(target.resource, body)
    if target.resource.conversion is not None:
        _refuse_loose_event(target.resource, stored)
    obj = create(cluster, _stored(cluster, target), stored, options)
    return _answer(request, target.resource, 201, obj, options)


def _refuse_loose_event(resource: Resource, stored: Any) -> None:
    """The one converted kind is the event; its newer form is judged more strictly."""
    problems = events.check_strict(stored) if isinstance(stored, dict) else []
    if problems:
        raise invalid("", resource.kind, meta(stored).get("name", ""), problems)


def _put(cluster: Cluster, request: Request, target: Target) -> Reply:
    options = write_options(request, "UpdateOptions")
    body = _converted(target.resource, decode_body(request))
    stored = _stored(cluster, target)
    absent = stored.key not in cluster.store.collection(stored.resource.collection).items
    if absent and stored.resource.create_on_update and not target.subresource:
        return _answer(request, target.resource, 201, create(cluster, stored, body, options), options)
    return _answer(request, target.resource, 200, replace_object(cluster, stored, body, options), options)


def _patch(cluster: Cluster, request: Request, target: Target) -> Reply:
    options = write_options(request, "PatchOptions")
    content_type = request.headers.get("content-type", "").partition(";")[0].strip()
    body = request.body
    if target.resource.conversion is not None:
        if content_type == JSON_PATCH:
            raise unsupported_media_type(("application/merge-patch+json",))
        body = encode(_converted(target.resource, _object(body)))
    obj, created = patch(cluster, _stored(cluster, target), content_type, body, options)
    return _answer(request, target.resource, 201 if created else 200, obj, options)


def _object(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise ApiError(400, "BadRequest", f"error decoding patch: {error}") from error


def _delete(cluster: Cluster, request: Request, target: Target) -> Reply:
    body = delete_options(request)
    stored = _stored(cluster, target)
    deletion = delete(cluster, stored, body, dry_run=bool(request.query.get("dryRun") or body.get("dryRun")))
    return json_reply(200, _deleted(target.resource, deletion))


def _deleted(resource: Resource, deletion: Deletion) -> Obj:
    """Most kinds answer a Status once the object is gone; pods and what still waits answer the object."""
    if not deletion.gone or resource.returns_deleted:
        return as_served(resource, deletion.obj)
    found = meta(deletion.obj)
    details = {"name": found["name"], "kind": resource.plural, "uid": found["uid"]}
    if resource.group:
        details["group"] = resource.group
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def _delete_collection(cluster: Cluster, request: Request, target: Target) -> Reply:
    body = delete_options(request)
    stored = _stored(cluster, target)
    matches = selector(request.query, target.resource.selectable)
    collection = cluster.store.collection(stored.resource.collection)
    dry_run = bool(request.query.get("dryRun") or body.get("dryRun"))
    deleted: list[Obj] = []
    for key in list(collection.ordered_keys()):
        entry = collection.items.get(key)
        in_scope = entry is not None and (not target.namespace or key[0] == target.namespace)
        if entry is not None and in_scope and (matches is None or matches(entry.obj)):
            one_target = replace(stored, namespace=key[0], name=key[1])
            deleted.append(as_served(target.resource, delete(cluster, one_target, body, dry_run=dry_run).obj))
    metadata = {"resourceVersion": str(cluster.store.version)}
    kind = f"{target.resource.kind}List"
    return json_reply(
        200, {"kind": kind, "apiVersion": target.resource.api_version, "metadata": metadata, "items": deleted}
    )
