"""Builds the discovery documents: aggregated for kubectl, and one list per group version.

Takes the registry's groups and returns the documents below /api and /apis. Must never depend on objects.
"""

from typing import Final

from sandbox.apiserver.objects import Obj
from sandbox.apiserver.resources.resource import VERBS, Groups, Resource

AGGREGATED_TYPE: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_OBJECT_VERBS: Final = ("get", "patch", "update")


def wants_aggregated(accept: str) -> bool:
    return "as=APIGroupDiscoveryList" in accept and "v=v2" in accept.replace("v=v2beta1", "")


def _subresource(resource: Resource, name: str) -> tuple[Obj, tuple[str, ...]]:
    """The kind that a subresource takes, and its verbs."""
    if name == "binding":
        return {"group": "", "version": "v1", "kind": "Binding"}, ("create",)
    if name == "eviction":
        return {"group": "policy", "version": "v1", "kind": "Eviction"}, ("create",)
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    return kind, _OBJECT_VERBS


def _names(resource: Resource) -> Obj:
    named = {"shortNames": resource.short_names, "categories": resource.categories}
    return {field: list(names) for field, names in named.items() if names}


def resource_list(group_version: str, resources: list[Resource]) -> Obj:
    """/api/v1, /apis/group/version: the old form, which `kubectl drain` reads."""
    listed: list[Obj] = []
    for resource in resources:
        entry: Obj = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(VERBS),
            **_names(resource),
        }
        listed.append(entry)
        for name in resource.subresources:
            kind, verbs = _subresource(resource, name)
            foreign = kind["group"] != resource.group
            listed.append(
                {
                    "name": f"{resource.plural}/{name}",
                    "singularName": "",
                    "namespaced": resource.namespaced,
                    **({"group": kind["group"], "version": kind["version"]} if foreign else {}),
                    "kind": kind["kind"],
                    "verbs": list(verbs),
                }
            )
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": listed,
    }


def aggregated(groups: Groups) -> Obj:
    """Everything in one document."""
    items = [
        {
            "metadata": {**({"name": group} if group else {}), "creationTimestamp": None},
            "versions": [
                {
                    "version": version,
                    "resources": [*map(_aggregated, resources)],
                    "freshness": "Current",
                }
                for version, resources in versions.items()
            ],
        }
        for group, versions in groups.items()
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated(resource: Resource) -> Obj:
    subresources: list[Obj] = []
    for name in resource.subresources:
        kind, verbs = _subresource(resource, name)
        subresources.append({"subresource": name, "responseKind": kind, "verbs": list(verbs)})
    return {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": resource.version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(VERBS),
        **_names(resource),
        **({"subresources": subresources} if subresources else {}),
    }
