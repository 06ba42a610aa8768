"""Updates an object: PUT, patches and applies all end here.

Takes a function from the stored object to the new one, and returns the stored result. All rules between two versions of
an object are here: what a subresource may change, stale versions, generations, no-ops, finalizers.
"""

from collections.abc import Callable
from typing import Final

from sandbox.apiserver.admission.agent_node import refusal
from sandbox.apiserver.admission.kinds import rules_of
from sandbox.apiserver.errors import bad_request, conflict, forbidden, invalid, name_differs, stale, wrong
from sandbox.apiserver.lifecycle.checks import check, check_type, conform, settle_definition
from sandbox.apiserver.lifecycle.context import Cluster, Target, WriteOptions, entry_of
from sandbox.apiserver.objects import MISSING, OF_THE_SERVER, Obj, meta
from sandbox.apiserver.ownership.fieldsets import compare, without_system_metadata
from sandbox.apiserver.ownership.managedfields import UPDATE, Manager, after_update, decode, store
from sandbox.apiserver.resources.resource import Resource
from sandbox.apiserver.storage.store import DELETED, MODIFIED

_KEPT: Final = ("name", "namespace", "generateName", *OF_THE_SERVER)
Build = Callable[[Obj], Obj]


def replace(cluster: Cluster, target: Target, wanted: Obj, options: WriteOptions) -> Obj:
    """PUT: the uid in the body is a condition."""
    resource, found = target.resource, meta(entry_of(cluster, target).obj)
    uid = meta(check_type(resource, wanted)).get("uid")
    if uid and uid != found["uid"]:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {found['uid']}"
        raise conflict(resource, target.name, why)
    return update(cluster, target, lambda _old: wanted, options)


def update(cluster: Cluster, target: Target, build: Build, options: WriteOptions) -> Obj:
    """PUT and patches: the writer takes what it changed."""
    return _write(cluster, target, build, options, applied=False)


def update_applied(cluster: Cluster, target: Target, build: Build, options: WriteOptions) -> Obj:
    """Server-side apply: `build` has settled the ownership already."""
    return _write(cluster, target, build, options, applied=True)


def _write(cluster: Cluster, target: Target, build: Build, options: WriteOptions, *, applied: bool) -> Obj:
    resource = target.resource
    old = entry_of(cluster, target).obj
    wanted = check_type(resource, build(old))
    _check_identity(resource, old, wanted)
    new = _confined(target, old, wanted)
    new = rules_of(resource).default(conform(resource, new, old, options, applied=applied))
    if target.subresource != "binding":  # a binding owns nothing and is judged by its own rules
        if not applied:
            new = _track(cluster, target, old, new, options)
        check(resource, new, old, target.subresource)
    limited = cluster.limits_agents and (resource.group, resource.kind) == ("", "Node")
    if limited and (why := refusal(options.manager, old, new, target.subresource)):
        raise forbidden(resource, target.name, why)
    if resource.kind == "CustomResourceDefinition":
        new = settle_definition(cluster, resource, new)
    if resource.numbered and not target.subresource and _intent_differs(resource, old, new):
        new = {**new, "metadata": {**new["metadata"], "generation": meta(old).get("generation", 0) + 1}}
    if new == old or options.dry_run:
        return new
    gone = is_finished(new)
    return cluster.store.commit(resource.collection, DELETED if gone else MODIFIED, target.key, new)


def _check_identity(resource: Resource, old: Obj, wanted: Obj) -> None:
    """The name, resourceVersion and uid that a write brings along must be those of the stored object."""
    before, metadata = meta(old), meta(wanted)
    name = before["name"]
    if metadata.get("name", name) != name:
        raise name_differs(metadata["name"], name)
    if metadata.get("namespace", before.get("namespace")) != before.get("namespace"):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    version = metadata.get("resourceVersion")
    if version in (None, "", "0"):
        if not resource.unconditional_update:
            problem = wrong("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(resource.group, resource.plural, name, [problem])
    elif version != before["resourceVersion"]:
        raise stale(resource, name)
    uid = metadata.get("uid")
    if uid and uid != before["uid"]:
        problem = wrong("metadata.uid", uid, "field is immutable")
        raise invalid(resource.group, resource.kind, name, [problem])


def _confined(target: Target, old: Obj, wanted: Obj) -> Obj:
    """The wanted object, held to what this endpoint may write."""
    resource = target.resource
    metadata = {name: value for name, value in meta(wanted).items() if name not in _KEPT}
    metadata.update({name: meta(old)[name] for name in _KEPT if name in meta(old)})
    if "managedFields" not in metadata and "managedFields" in meta(old):
        metadata["managedFields"] = meta(old)["managedFields"]
    if target.subresource == "status":
        if resource.custom is not None:
            metadata = {**meta(old), **{k: v for k, v in metadata.items() if k == "managedFields"}}
        status = {"status": wanted["status"]} if "status" in wanted else {}
        rest = {name: value for name, value in old.items() if name != "status"}
        return {**rest, "metadata": _same_or(meta(old), metadata), **status}
    new = {**wanted, "apiVersion": resource.api_version, "kind": resource.kind}
    if resource.has_status and target.subresource != "binding":
        new.pop("status", None)
        if "status" in old:
            new["status"] = old["status"]
    return {**new, "metadata": _same_or(meta(old), metadata)}


def _same_or(old: Obj, new: Obj) -> Obj:
    return old if old == new else new


def _track(cluster: Cluster, target: Target, old: Obj, new: Obj, options: WriteOptions) -> Obj:
    """managedFields after an update; unchanged where the update changed nothing."""
    resource = target.resource
    touched, removed = compare(old, new, resource.schema)
    touched, removed = without_system_metadata(touched), without_system_metadata(removed)
    if not touched and not removed:
        return new
    entries = decode(meta(new).get("managedFields"))
    manager = Manager(
        name=options.manager, operation=UPDATE, api_version=resource.api_version, subresource=target.subresource
    )
    return store(new, after_update(entries, manager, touched, removed, cluster.now()))


def _intent_differs(resource: Resource, old: Obj, new: Obj) -> bool:
    """Whether anything but metadata (and a separate status) changed."""
    ignored = {"metadata", "apiVersion", "kind", *(("status",) if resource.has_status else ())}
    names = (old.keys() | new.keys()) - ignored
    return any(old.get(name, MISSING) != new.get(name, MISSING) for name in names)


def is_finished(obj: Obj) -> bool:
    """Whether an object that is being deleted has nothing left to wait for."""
    metadata = meta(obj)
    waiting = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
    return bool(metadata.get("deletionTimestamp")) and not waiting
