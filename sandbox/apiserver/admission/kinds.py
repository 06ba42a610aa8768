"""Which rules a kind has: defaults of its form, what the server sets when it is created, what it refuses.

A kind that is not listed has none. Must never look at requests.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sandbox.apiserver.admission import events, leases, nodes, pods
from sandbox.apiserver.errors import FieldError
from sandbox.apiserver.objects import Obj
from sandbox.apiserver.resources import definitions
from sandbox.apiserver.resources.resource import Resource


def _same(obj: Obj) -> Obj:
    return obj


def _without_status(obj: Obj) -> Obj:
    return {name: value for name, value in obj.items() if name != "status"}


def _nothing_wrong(_obj: Obj, _old: Obj | None) -> list[FieldError]:
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRules:
    """`default` runs on every write, `prepare` when the object is created, `check` on both."""

    default: Callable[[Obj], Obj] = _same
    prepare: Callable[[Obj], Obj] = _same
    check: Callable[[Obj, Obj | None], list[FieldError]] = _nothing_wrong


def _labelled_namespace(obj: Obj) -> Obj:
    metadata = obj["metadata"]
    labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": metadata["name"]}
    return {**obj, "metadata": {**metadata, "labels": labels}}


def _active_namespace(obj: Obj) -> Obj:
    return {**obj, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}


_RULES: Final = {
    ("", "Pod"): KindRules(default=pods.default, prepare=pods.prepare, check=pods.check),
    ("", "Event"): KindRules(prepare=events.prepare, check=events.check),
    ("", "Node"): KindRules(default=nodes.default, check=nodes.check),
    ("coordination.k8s.io", "Lease"): KindRules(check=leases.check),
    ("", "Namespace"): KindRules(default=_labelled_namespace, prepare=_active_namespace),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): KindRules(
        default=definitions.with_defaults,
        prepare=_without_status,
        check=lambda crd, _old: definitions.check(crd),
    ),
}
_PLAIN: Final = KindRules()
_STATUS_IS_NOT_WRITTEN: Final = KindRules(prepare=_without_status)


def rules_of(resource: Resource) -> KindRules:
    found = _RULES.get((resource.group, resource.kind))
    if found is not None:
        return found
    # Of a custom kind the status was dropped before defaults, which may bring another.
    return _STATUS_IS_NOT_WRITTEN if resource.has_status and resource.custom is None else _PLAIN
