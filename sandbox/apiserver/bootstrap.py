"""Adds what a cluster has from the start, and follows writes that change what is served.

Takes an empty cluster and creates its namespaces and priority classes. New namespaces get what the controller manager
would give them (the default service account), CRDs become resources when they are written.
"""

from typing import Final

from sandbox.apiserver.lifecycle.context import NAMESPACES, Cluster, Target, WriteOptions
from sandbox.apiserver.lifecycle.create import create
from sandbox.apiserver.lifecycle.delete import finish_namespace
from sandbox.apiserver.objects import Obj
from sandbox.apiserver.resources.definitions import resource_of
from sandbox.apiserver.storage.store import ADDED, DELETED, CollectionId, Event

DEFINITIONS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")
_FIRST_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_FIRST_PRIORITIES: Final = {
    "system-cluster-critical": (2_000_000_000, "Used for system critical pods that must run in the cluster."),
    "system-node-critical": (2_000_001_000, "Used for system critical pods that must not be moved from their node."),
}
_OPTIONS: Final = WriteOptions(manager="kube-apiserver")


def bootstrap(cluster: Cluster) -> None:
    cluster.store.listen(lambda identity, event: _follow(cluster, identity, event))
    for name in _FIRST_NAMESPACES:
        _create(cluster, "", "namespaces", {"metadata": {"name": name}})
    for name, (value, description) in _FIRST_PRIORITIES.items():
        body = {"metadata": {"name": name}, "value": value, "description": description}
        _create(cluster, "scheduling.k8s.io", "priorityclasses", body)


def _create(cluster: Cluster, group: str, plural: str, body: Obj, namespace: str = "") -> None:
    resource = cluster.resource(group, "v1", plural)
    create(cluster, Target(resource=resource, namespace=namespace), body, _OPTIONS)


def _follow(cluster: Cluster, identity: CollectionId, event: Event) -> None:
    if identity == NAMESPACES and event.type == ADDED:
        _create(cluster, "", "serviceaccounts", {"metadata": {"name": "default"}}, namespace=event.key[1])
    elif identity == DEFINITIONS:
        _serve(cluster, event)
    finish_namespace(cluster, identity, event)


def _serve(cluster: Cluster, event: Event) -> None:
    """A CRD's resources appear with it and go with it, objects and watches included."""
    spec = event.entry.obj["spec"]
    group, plural = spec["group"], spec["names"]["plural"]
    if event.previous is not None:
        cluster.registry.remove(group, plural)
    if event.type == DELETED:
        collection = cluster.store.collection((group, plural))
        for key in list(collection.ordered_keys()):
            cluster.store.commit((group, plural), DELETED, key, collection.items[key].obj)
        cluster.store.drop((group, plural))
        return
    cluster.registry.add(resource_of(event.entry.obj))
