"""Applies a PATCH: builds the new object by its patch type, and passes it to update or create.

Takes the content type and the body, and returns the stored object and whether it was created. Types that a resource
does not take are 415, as on a real server. The body of an apply is JSON, as all clients send it, though its type says
YAML.
"""

import json
from typing import Any, Final

from sandbox.apiserver.errors import (
    ApiError,
    bad_request,
    conflict,
    forbidden_field,
    invalid,
    name_differs,
    unsupported_media_type,
)
from sandbox.apiserver.lifecycle.checks import check_type
from sandbox.apiserver.lifecycle.context import Cluster, Target, WriteOptions, entry_of
from sandbox.apiserver.lifecycle.create import create_applied
from sandbox.apiserver.lifecycle.update import Build, update, update_applied
from sandbox.apiserver.objects import Obj, meta
from sandbox.apiserver.ownership.apply import apply
from sandbox.apiserver.ownership.managedfields import APPLY, Manager
from sandbox.apiserver.ownership.typed import typed_errors
from sandbox.apiserver.patches import json_patch, merge_patch, strategic_merge
from sandbox.apiserver.resources.resource import Resource

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"


def accepted_types(resource: Resource) -> tuple[str, ...]:
    strategic = (STRATEGIC_PATCH,) if resource.custom is None else ()
    return (JSON_PATCH, MERGE_PATCH, *strategic, APPLY_PATCH)


def patch(cluster: Cluster, target: Target, content_type: str, body: bytes, options: WriteOptions) -> tuple[Obj, bool]:
    """The patched object, and whether it is new."""
    accepted = accepted_types(target.resource)
    if content_type not in accepted:
        raise unsupported_media_type(accepted)
    if content_type == APPLY_PATCH:
        return _apply(cluster, target, body, options)
    if options.force:
        problem = forbidden_field("force", "may not be specified for non-apply patch")
        raise invalid("meta.k8s.io", "PatchOptions", "", [problem])
    return update(cluster, target, _builder(content_type, _decoded(body)), options), False


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from error


def _builder(content_type: str, document: Any) -> Build:
    if content_type == JSON_PATCH:
        if not isinstance(document, list):
            raise bad_request("error decoding patch: a JSON patch is a list of operations")
        return lambda old: json_patch(old, document)
    if not isinstance(document, dict):
        raise bad_request("error decoding patch: json: cannot unmarshal into Go value of type map[string]interface {}")
    if content_type == STRATEGIC_PATCH:
        return lambda old: strategic_merge(old, document)
    return lambda old: merge_patch(old, document)


def _apply(cluster: Cluster, target: Target, body: bytes, options: WriteOptions) -> tuple[Obj, bool]:
    resource = target.resource
    config = _applied_config(target, body)
    manager = Manager(
        name=options.manager, operation=APPLY, api_version=resource.api_version, subresource=target.subresource
    )
    entry = cluster.store.collection(resource.collection).items.get(target.key)
    if entry is None:
        return _apply_absent(cluster, target, config, manager, options), True

    def build(old: Obj) -> Obj:
        return apply(old, config, resource.schema, manager, force=options.force, now=cluster.now())

    return update_applied(cluster, target, build, options), False


def _apply_absent(cluster: Cluster, target: Target, config: Obj, manager: Manager, options: WriteOptions) -> Obj:
    if target.subresource:
        entry_of(cluster, target)  # raises: a subresource is never created
    uid = meta(config).get("uid")
    if uid:
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise conflict(target.resource, target.name, why)
    blank = {"apiVersion": config["apiVersion"], "kind": config["kind"], "metadata": {}}
    applied = apply(blank, config, target.resource.schema, manager, force=True, now=cluster.now())
    return create_applied(cluster, target, applied, options)


def _applied_config(target: Target, body: bytes) -> Obj:
    """The configuration, held to what this endpoint applies."""
    resource = target.resource
    config = _decoded(body)
    if not isinstance(config, dict):
        raise bad_request("error decoding patch: the configuration is not an object")
    version, kind = config.get("apiVersion", ""), config.get("kind", "")
    if (version, kind) != (resource.api_version, resource.kind):
        raise bad_request(f"invalid object type: {version or '/'}, Kind={kind}")
    _refuse_untyped(resource, config)
    config = check_type(resource, config)
    metadata = meta(config)
    if metadata.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    if metadata.get("name", target.name) != target.name:
        raise name_differs(metadata["name"], target.name)
    metadata = {**metadata, "name": target.name}
    if resource.namespaced:
        metadata.setdefault("namespace", target.namespace)
    if target.subresource:
        if resource.custom is not None:
            kept = ("name", "namespace", "uid", "resourceVersion")
            metadata = {name: value for name, value in metadata.items() if name in kept}
        config = {name: value for name, value in config.items() if name in ("apiVersion", "kind", "status")}
    elif resource.has_status:
        config = {name: value for name, value in config.items() if name != "status"}
    return {**config, "metadata": metadata}


def _refuse_untyped(resource: Resource, config: Obj) -> None:
    """What an apply cannot make sense of is, in Kubernetes, an error of the server."""
    problems = typed_errors(config, resource.schema)
    if not problems:
        return
    listed = problems[0] if len(problems) == 1 else "\n  ".join(["errors:", *problems])
    raise ApiError(
        500, "", f"failed to create typed patch object ({resource.api_version}, Kind={resource.kind}): {listed}"
    )
