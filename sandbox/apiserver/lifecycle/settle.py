"""What admission of some kinds needs to read elsewhere in the cluster.

Comes in: a pod (its priority class) or a CRD (the moment it is established). Goes out: the completed object.
"""

from typing import Final

from sandbox.apiserver.errors import forbidden
from sandbox.apiserver.lifecycle.context import Cluster
from sandbox.apiserver.objects import Obj, meta
from sandbox.apiserver.resources.definitions import established
from sandbox.apiserver.resources.resource import Resource

PRIORITY_CLASSES: Final = ("scheduling.k8s.io", "priorityclasses")


def settle_priority(cluster: Cluster, resource: Resource, obj: Obj) -> Obj:
    """A pod's priority is its class's value, or the default class's."""
    if (resource.group, resource.kind) != ("", "Pod"):
        return obj
    classes = cluster.store.collection(PRIORITY_CLASSES).items
    spec = dict(obj["spec"])
    wanted = spec.get("priorityClassName")
    if wanted:
        found = classes.get(("", wanted))
        if found is None:
            raise forbidden(resource, meta(obj)["name"], f"no PriorityClass with name {wanted} was found")
        chosen = found.obj
    else:
        defaults = [entry.obj for entry in classes.values() if entry.obj.get("globalDefault")]
        if not defaults:
            return obj
        chosen = min(defaults, key=lambda candidate: (candidate.get("value", 0), meta(candidate)["name"]))
        spec["priorityClassName"] = meta(chosen)["name"]
    spec["priority"] = chosen.get("value", 0)
    if chosen.get("preemptionPolicy"):
        spec["preemptionPolicy"] = chosen["preemptionPolicy"]
    return {**obj, "spec": spec}


def settle_definition(cluster: Cluster, resource: Resource, obj: Obj) -> Obj:
    """A CRD that is accepted is served at once."""
    return established(obj, cluster.now()) if resource.kind == "CustomResourceDefinition" else obj
