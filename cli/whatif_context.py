"""Reads what the filters need in addition to pods and nodes: namespaces, volumes, services, workloads.

Takes raw objects from files by kind, returns a SchedulingContext made by the controller's own parsers. A kind of which
the files have no object counts as unknown, as it does for a controller that may not list it. What cannot be read is
never reported here: it is skipped.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

from controller.api.pod_groups import read_pod_group
from controller.api.reading import Unreadable
from controller.api.storage import (
    OF_PODS_OWN,
    read_claim,
    read_device_class,
    read_namespace,
    read_service,
    read_storage_class,
    read_volume,
    read_workload,
)
from controller.model.scheduling import SchedulingContext

Raw = Mapping[str, Any]
Value = TypeVar("Value")
Key = tuple[str, str]

STORAGE = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass")
CONTEXT_KINDS = ("Namespace", *STORAGE, "Service", *OF_PODS_OWN, "DeviceClass", "PodGroup")


def context_of(by_kind: Mapping[str, Sequence[Raw]]) -> SchedulingContext:
    """`by_kind` holds a list, empty or not, for each of CONTEXT_KINDS."""
    workloads = {
        (kind, *key): one for kind in OF_PODS_OWN for key, one in (_known(by_kind[kind], read_workload) or {}).items()
    }
    resources = (_known(by_kind["DeviceClass"], read_device_class) or {}).values()
    claims = _known(by_kind["PersistentVolumeClaim"], read_claim)
    classes = _by_name(_known(by_kind["StorageClass"], read_storage_class))
    if classes is None and claims and all(claim.bound for claim in claims.values()):
        classes = {}  # none is needed
    return SchedulingContext(
        namespaces=_by_name(_known(by_kind["Namespace"], read_namespace)),
        claims=claims,
        volumes=_by_name(_known(by_kind["PersistentVolume"], read_volume)),
        storage_classes=classes,
        services=_known(by_kind["Service"], read_service),
        workloads=workloads or None,
        pod_groups={
            (group, *key): least
            for group in {_api_group(raw) for raw in by_kind["PodGroup"]}
            for key, least in (
                _known([raw for raw in by_kind["PodGroup"] if _api_group(raw) == group], read_pod_group) or {}
            ).items()
        },
        dra_resources=frozenset(chain.from_iterable(resources)),
    )


def _known(objects: Sequence[Raw], read: Callable[[Raw], Value | Unreadable]) -> dict[Key, Value] | None:
    """By namespace and name; None where there is no object at all."""
    if not objects:
        return None
    found: dict[Key, Value] = {}
    for raw in objects:
        value = read(raw)
        if not isinstance(value, Unreadable):
            found[raw["metadata"].get("namespace") or "default", raw["metadata"]["name"]] = value
    return found


def _api_group(raw: Raw) -> str:
    return str(raw.get("apiVersion")).partition("/")[0]


def _by_name(found: Mapping[Key, Value] | None) -> dict[str, Value] | None:
    return None if found is None else {name: value for (_, name), value in found.items()}
