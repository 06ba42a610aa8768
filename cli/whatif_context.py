"""Reads what the filters need in addition to pods and nodes: namespaces, volumes, services, workloads.

Takes raw objects from files by kind, returns a SchedulingContext as the controller's informers would. A kind of which
the files have no object counts as unknown, as it does for a controller that may not list it. What cannot be read is
never reported here: it is skipped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from controller.api.reading import Unreadable
from controller.cache.informers import OF_VOLUMES, POD_GROUPS, WORKLOADS, Kind, context_from
from controller.model.scheduling import SchedulingContext

Raw = Mapping[str, Any]

_OBJECTS = {
    Kind.NAMESPACES: "Namespace",
    Kind.CLAIMS: "PersistentVolumeClaim",
    Kind.VOLUMES: "PersistentVolume",
    Kind.STORAGE_CLASSES: "StorageClass",
    Kind.SERVICES: "Service",
    **{kind: name for name, kind in WORKLOADS.items()},
    Kind.DEVICE_CLASSES: "DeviceClass",
    **dict.fromkeys(chain.from_iterable(POD_GROUPS.values()), "PodGroup"),
}
STORAGE = tuple(_OBJECTS[kind] for kind in OF_VOLUMES)
CONTEXT_KINDS = tuple(dict.fromkeys(_OBJECTS.values()))


def context_of(by_kind: Mapping[str, Sequence[Raw]]) -> SchedulingContext:
    """`by_kind` holds a list, empty or not, for each of CONTEXT_KINDS."""

    def items(kind: Kind) -> dict[tuple[str, str], Any] | None:
        """By namespace and name; None where there is no object at all, of workloads where there is none of any kind."""
        (path, read), name = kind.value, _OBJECTS[kind]
        if not (any(by_kind[each] for each in WORKLOADS) if name in WORKLOADS else by_kind[name]):
            return None
        found: dict[tuple[str, str], Any] = {}
        for raw in by_kind[name]:
            value = read(raw)
            # Three systems have PodGroups.
            meant = name != "PodGroup" or path.startswith(f"/apis/{str(raw.get('apiVersion')).partition('/')[0]}/")
            if meant and not isinstance(value, Unreadable):
                found[raw["metadata"].get("namespace") or "default", raw["metadata"]["name"]] = value
        return found

    context = context_from(items)
    if context.storage_classes is None and context.claims and all(claim.bound for claim in context.claims.values()):
        return replace(context, storage_classes={})  # none is needed
    return context
