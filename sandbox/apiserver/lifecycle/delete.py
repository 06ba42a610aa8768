"""Deletes an object: at once, after its finalizers, or, for a pod on a node, after its grace period.

Takes the target and the DeleteOptions, and returns the last state and whether the object is gone. Cascades are not
followed (there is no garbage collector); a namespace and a CRD delete their objects with them.
"""

from datetime import timedelta
from typing import Any

from kube.timestamps import api_time
from sandbox.apiserver.errors import failed_precondition
from sandbox.apiserver.lifecycle.context import NAMESPACES, Cluster, Target, entry_of
from sandbox.apiserver.lifecycle.update import is_finished
from sandbox.apiserver.objects import Obj, dig, meta
from sandbox.apiserver.resources.resource import Resource
from sandbox.apiserver.storage.store import DELETED, MODIFIED, CollectionId, Event


def delete(cluster: Cluster, target: Target, body: Obj, *, dry_run: bool) -> tuple[Obj, bool]:
    """The last state, and whether it is gone. `body` is a DeleteOptions, with the query's gracePeriodSeconds in it."""
    resource = target.resource
    old = entry_of(cluster, target).obj
    _check_preconditions(resource, old, body.get("preconditions") or {})
    grace = _grace_seconds(resource, old, body.get("gracePeriodSeconds"))
    metadata = dict(meta(old))
    waits = bool(metadata.get("finalizers")) or grace > 0 or _is_namespace_with_content(cluster, target)
    if dry_run:
        return old, not waits
    if not waits:
        last = _without_grace(cluster, old) if _is_pod(resource) else old
        return cluster.store.commit(resource.collection, DELETED, target.key, last), True
    if metadata.get("deletionTimestamp") and metadata.get("deletionGracePeriodSeconds", 0) <= grace:
        return old, False
    if resource.numbered and not metadata.get("deletionTimestamp"):
        metadata["generation"] = metadata.get("generation", 0) + 1
    ends = cluster.clock() + timedelta(seconds=grace)
    metadata.update(deletionTimestamp=api_time(ends), deletionGracePeriodSeconds=grace)
    marked = {**old, "metadata": metadata}
    if resource.collection == NAMESPACES:
        del metadata["deletionGracePeriodSeconds"]
        marked["status"] = {**(old.get("status") or {}), "phase": "Terminating"}
    stored = cluster.store.commit(resource.collection, MODIFIED, target.key, marked)
    if resource.collection == NAMESPACES:
        _empty_namespace(cluster, target.name)
    return stored, False


def _check_preconditions(resource: Resource, old: Obj, wanted: dict[str, Any]) -> None:
    found = meta(old)
    for field, name, what in (
        ("uid", "UID", "deleted and then recreated"),
        ("resourceVersion", "ResourceVersion", "modified"),
    ):
        if wanted.get(field) and wanted[field] != found[field]:
            why = (
                f"the {name} in the precondition ({wanted[field]}) does not match the {name} in record "
                f"({found[field]}). The object might have been {what}"
            )
            raise failed_precondition(resource, found["name"], why)


def _is_pod(resource: Resource) -> bool:
    return (resource.group, resource.kind) == ("", "Pod")


def _without_grace(cluster: Cluster, pod: Obj) -> Obj:
    metadata = {"deletionTimestamp": cluster.now(), **meta(pod), "deletionGracePeriodSeconds": 0}
    return {**pod, "metadata": metadata}


def _grace_seconds(resource: Resource, obj: Obj, asked: int | None) -> int:
    """Only a pod that may run on a node is given time."""
    if not _is_pod(resource) or not dig(obj, "spec", "nodeName"):
        return 0
    if dig(obj, "status", "phase") in ("Succeeded", "Failed"):
        return 0
    if asked is not None:
        return max(int(asked), 0)
    return int(obj["spec"].get("terminationGracePeriodSeconds", 30))


def _namespaced_collections(cluster: Cluster) -> list[tuple[Resource, CollectionId]]:
    found = {resource.collection: resource for resource in cluster.registry.namespaced()}
    return [(resource, collection) for collection, resource in found.items()]


def _names_in(cluster: Cluster, collection: CollectionId, namespace: str) -> list[str]:
    return [name for space, name in cluster.store.collection(collection).ordered_keys() if space == namespace]


def _is_namespace_with_content(cluster: Cluster, target: Target) -> bool:
    if target.resource.collection != NAMESPACES:
        return False
    return any(_names_in(cluster, collection, target.name) for _, collection in _namespaced_collections(cluster))


def _empty_namespace(cluster: Cluster, namespace: str) -> None:
    for resource, collection in _namespaced_collections(cluster):
        for name in _names_in(cluster, collection, namespace):
            delete(cluster, Target(resource=resource, namespace=namespace, name=name), {}, dry_run=False)


def finish_namespace(cluster: Cluster, _collection: CollectionId, event: Event) -> None:
    """Listens to the store: the last object of a terminating namespace takes it along."""
    namespace = event.key[0]
    if event.type != DELETED or not namespace:
        return
    entry = cluster.store.collection(NAMESPACES).items.get(("", namespace))
    if entry is None or not meta(entry.obj).get("deletionTimestamp"):
        return
    target = Target(resource=cluster.resource("", "v1", "namespaces"), name=namespace)
    if not _is_namespace_with_content(cluster, target) and is_finished(entry.obj):
        cluster.store.commit(NAMESPACES, DELETED, target.key, entry.obj)
