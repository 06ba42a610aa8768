"""The builtin kinds that are served, one row each.

ReplicaSets, StatefulSets and Services are there for the controller, which spreads pods by them; nothing acts on them.
Their form comes from the client's models, their columns from `tables`.
"""

from typing import Any, Final

from sandbox.apiserver.resources.resource import Resource
from sandbox.apiserver.tables.builtin import columns_of

_POD_FIELDS: Final = (
    "spec.nodeName",
    "spec.schedulerName",
    "status.phase",
    "status.nominatedNodeName",
)
_INVOLVED: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
_EVENT_FIELDS: Final = {
    **{f"involvedObject.{name}": ("involvedObject", name) for name in _INVOLVED},
    "reason": ("reason",),
    "source": ("source", "component"),
    "type": ("type",),
}


def _paths(*labels: str) -> dict[str, tuple[str, ...]]:
    return {label: tuple(label.split(".")) for label in labels}


def _row(api: str, kind: str, plural: str, short: str = "", *, model: str = "", **rest: Any) -> Resource:
    group, _, version = api.rpartition("/")
    return Resource(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        short_names=tuple(short.split()),
        model=model or f"V1{kind}",
        columns=columns_of(kind),
        **rest,
    )


_STATUS: Final = ("status",)
_ALL: Final = ("all",)
_APPS: Final[dict[str, Any]] = {"subresources": _STATUS, "categories": _ALL, "numbered": True}


BUILTIN: Final = (
    _row("v1", "ConfigMap", "configmaps", "cm"),
    _row("v1", "Event", "events", "ev", model="CoreV1Event", selectable=_EVENT_FIELDS),
    _row(
        "v1", "Namespace", "namespaces", "ns", namespaced=False,
        subresources=_STATUS, selectable=_paths("status.phase"),
    ),
    _row(
        "v1", "Node", "nodes", "no", namespaced=False,
        subresources=_STATUS, selectable=_paths("spec.unschedulable"),
    ),
    _row(
        "v1", "Pod", "pods", "po", subresources=("status", "binding", "eviction"), categories=_ALL,
        selectable=_paths(*_POD_FIELDS), numbered=True, returns_deleted=True,
    ),
    _row("v1", "Secret", "secrets", selectable=_paths("type")),
    _row("v1", "Service", "services", "svc", subresources=_STATUS, categories=_ALL, returns_deleted=True),
    _row("v1", "ServiceAccount", "serviceaccounts", "sa", returns_deleted=True),
    _row(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", "crd crds",
        namespaced=False, subresources=_STATUS, categories=("api-extensions",), numbered=True,
        unconditional_update=False,
    ),
    _row("apps/v1", "ReplicaSet", "replicasets", "rs", **_APPS),
    _row("apps/v1", "StatefulSet", "statefulsets", "sts", **_APPS),
    _row("coordination.k8s.io/v1", "Lease", "leases", unconditional_update=False),
    _row("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", "pc", namespaced=False, numbered=True),
)  # fmt: skip
"""Every builtin resource, in the order of discovery."""
