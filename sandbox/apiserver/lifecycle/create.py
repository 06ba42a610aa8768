"""Creates an object: POST, and server-side apply of one that does not exist.

Takes the object as the client sent it and returns the stored object (or, for a dry run, what would be stored).
"""

import random
import uuid
from typing import Final

from sandbox.apiserver.admission.kinds import rules_of
from sandbox.apiserver.errors import already_exists, bad_request, forbidden, invalid, name_differs, not_found, required
from sandbox.apiserver.lifecycle.checks import check, check_type, conform, settle_definition, settle_priority
from sandbox.apiserver.lifecycle.context import NAMESPACES, Cluster, Target, WriteOptions
from sandbox.apiserver.objects import OF_THE_SERVER, Obj, meta
from sandbox.apiserver.ownership.fieldsets import compare, difference, without_system_metadata
from sandbox.apiserver.ownership.managedfields import UPDATE, Manager, after_update, store
from sandbox.apiserver.resources.resource import Resource
from sandbox.apiserver.storage.store import ADDED

_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"  # as Kubernetes: nothing that spells words
_LONGEST_GENERATED: Final = 58


def create(cluster: Cluster, target: Target, body: Obj, options: WriteOptions) -> Obj:
    """POST: the writer owns every field."""
    resource = target.resource
    obj = check_type(resource, body)
    if meta(obj).get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    obj = _complete(cluster, target, obj, options)
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    obj = {**obj, "metadata": metadata}
    manager = Manager(name=options.manager, operation=UPDATE, api_version=resource.api_version)
    touched, _ = compare({"metadata": {}}, obj, resource.schema)
    if resource.has_status:
        touched = difference(touched, {"f:status": touched.get("f:status", {})})
    entries = after_update([], manager, without_system_metadata(touched), {}, cluster.now())
    return finish(cluster, target, store(obj, entries), options)


def create_applied(cluster: Cluster, target: Target, applied: Obj, options: WriteOptions) -> Obj:
    """Server-side apply of an absent object: `applied` brings its managedFields along."""
    return finish(cluster, target, _complete(cluster, target, applied, options, applied=True), options)


def finish(cluster: Cluster, target: Target, obj: Obj, options: WriteOptions) -> Obj:
    """What follows once ownership is known: admission, validation, the store."""
    resource = target.resource
    obj = settle_priority(cluster, resource, rules_of(resource).prepare(obj))
    check(resource, obj, None)
    obj = settle_definition(cluster, resource, obj)
    metadata = {**obj["metadata"], "uid": str(uuid.uuid4()), "creationTimestamp": cluster.now()}
    if resource.numbered:
        metadata["generation"] = 1
    obj = {**obj, "metadata": metadata}
    if options.dry_run:
        return obj
    key = (metadata.get("namespace", ""), metadata["name"])
    return cluster.store.commit(resource.collection, ADDED, key, obj)


def _complete(cluster: Cluster, target: Target, obj: Obj, options: WriteOptions, *, applied: bool = False) -> Obj:
    """The object with its name and namespace, pruned and defaulted."""
    resource = target.resource
    metadata = {name: value for name, value in meta(obj).items() if name not in OF_THE_SERVER}
    if not metadata.get("name"):
        metadata["name"] = _generated(resource, metadata.get("generateName"))
    if target.name and metadata["name"] != target.name:
        raise name_differs(metadata["name"], target.name)
    if resource.namespaced:
        metadata["namespace"] = _namespace(cluster, target, metadata)
    else:
        metadata.pop("namespace", None)
    key = (metadata.get("namespace", ""), metadata["name"])
    if key in cluster.store.collection(resource.collection).items:
        raise already_exists(resource, metadata["name"])
    if resource.custom is not None and resource.has_status:
        obj = {name: value for name, value in obj.items() if name != "status"}
    obj = conform(resource, {**obj, "metadata": metadata}, None, options, applied=applied)
    return rules_of(resource).default(obj)


def _generated(resource: Resource, prefix: str | None) -> str:
    if not prefix:
        raise invalid(
            resource.group, resource.kind, "", [required("metadata.name", "name or generateName is required")]
        )
    return prefix[:_LONGEST_GENERATED] + "".join(random.choices(_SUFFIX_LETTERS, k=5))


def _namespace(cluster: Cluster, target: Target, metadata: Obj) -> str:
    wanted: str = metadata.get("namespace") or target.namespace or "default"
    if target.namespace and wanted != target.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    namespace = cluster.store.collection(NAMESPACES).items.get(("", wanted))
    if namespace is None:
        raise not_found(cluster.resource("", "v1", "namespaces"), wanted)
    if meta(namespace.obj).get("deletionTimestamp"):
        why = f"unable to create new content in namespace {wanted} because it is being terminated"
        raise forbidden(target.resource, metadata["name"], why)
    return wanted
