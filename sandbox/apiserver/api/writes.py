"""POST, PUT, PATCH and DELETE of objects.

Takes a request and its target, and returns a reply. Collections cannot be deleted at once.
"""

from sandbox.apiserver.api.representation import one
from sandbox.apiserver.api.requests import (
    Reply,
    Request,
    decode_body,
    delete_options,
    json_reply,
    wants_table,
    write_options,
)
from sandbox.apiserver.errors import bad_request, method_not_allowed
from sandbox.apiserver.lifecycle.bind import bind, evict
from sandbox.apiserver.lifecycle.context import Cluster, Target, WriteOptions
from sandbox.apiserver.lifecycle.create import create
from sandbox.apiserver.lifecycle.delete import delete
from sandbox.apiserver.lifecycle.patch import patch
from sandbox.apiserver.lifecycle.update import replace
from sandbox.apiserver.objects import Obj, meta
from sandbox.apiserver.resources.resource import Resource

WORKLOAD_GROUP = "apps"
NO_CONTROLLER = "No controller acts on this {kind} in the sandbox. Create Pods, or use a real cluster."


def write(cluster: Cluster, request: Request, target: Target) -> Reply:
    method = request.method
    if method == "POST":
        return _post(cluster, request, target)
    if target.subresource and method == "DELETE":
        raise method_not_allowed()
    if method == "DELETE" and target.name:
        return _delete(cluster, request, target)
    if method not in ("PUT", "PATCH") or target.subresource in ("binding", "eviction"):
        raise method_not_allowed()
    if not target.name:
        raise bad_request("name must be provided")
    return _put(cluster, request, target) if method == "PUT" else _patch(cluster, request, target)


def _answer(request: Request, resource: Resource, code: int, obj: Obj, options: WriteOptions) -> Reply:
    include = request.query.get("includeObject") or "Metadata"
    shown = one(resource, obj, include, as_table=wants_table(request.accept))
    idle = [NO_CONTROLLER.format(kind=resource.kind)] if code == 201 and resource.group == WORKLOAD_GROUP else []
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
    obj = create(cluster, target, body, options)
    return _answer(request, target.resource, 201, obj, options)


def _put(cluster: Cluster, request: Request, target: Target) -> Reply:
    options = write_options(request, "UpdateOptions")
    body = decode_body(request)
    return _answer(request, target.resource, 200, replace(cluster, target, body, options), options)


def _patch(cluster: Cluster, request: Request, target: Target) -> Reply:
    options = write_options(request, "PatchOptions")
    content_type = request.headers.get("content-type", "").partition(";")[0].strip()
    obj, created = patch(cluster, target, content_type, request.body, options)
    return _answer(request, target.resource, 201 if created else 200, obj, options)


def _delete(cluster: Cluster, request: Request, target: Target) -> Reply:
    body = delete_options(request)
    obj, gone = delete(cluster, target, body, dry_run=bool(request.query.get("dryRun") or body.get("dryRun")))
    return json_reply(200, _deleted(target.resource, obj, gone=gone))


def _deleted(resource: Resource, obj: Obj, *, gone: bool) -> Obj:
    """Most kinds answer a Status once the object is gone; pods and what still waits answer the object."""
    if not gone or resource.returns_deleted:
        return obj
    found = meta(obj)
    details = {"name": found["name"], "kind": resource.plural, "uid": found["uid"]}
    if resource.group:
        details["group"] = resource.group
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
