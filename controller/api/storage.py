"""Parses the objects that filters read besides pods and nodes, once per watch event.

Takes a Namespace, claim, volume, storage class, Service, workload, DeviceClass or ResourceSlice as the API server sent
it and returns its value or an `Unreadable` with the reason. Keeps only what decides where a pod fits, or who serves it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from controller.api.reading import Unreadable, readable
from controller.api.scheduling_rules import label_selector, labels, node_selector
from controller.model.scheduling import (
    ZONE_LABELS,
    ClaimView,
    Labels,
    LabelSelector,
    Requirement,
    Storage,
    StorageClassView,
    VolumeView,
)
from kube.quantities import parse_quantity

Raw = Mapping[str, Any]
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
OLD_CLASS = "volume.beta.kubernetes.io/storage-class"
ZONE_DELIMITER = "__"
DRA_DRIVER = "gpu.nvidia.com"
"""NVIDIA's, for GPUs."""
OF_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
"""With a DeviceClass's name, the extended resource that it serves without naming any (`implicit` since 1.34)."""


def read_namespace(raw: Raw) -> dict[str, str] | Unreadable:
    """Its labels."""
    return readable("namespace", raw, lambda namespace: dict(namespace["metadata"].get("labels") or {}))


def read_claim(raw: Raw) -> ClaimView | Unreadable:
    return readable("persistentvolumeclaim", raw, _claim)


def read_volume(raw: Raw) -> VolumeView | Unreadable:
    return readable("persistentvolume", raw, _volume)


def read_storage_class(raw: Raw) -> StorageClassView | Unreadable:
    return readable("storageclass", raw, _storage_class)


def read_service(raw: Raw) -> Labels | Unreadable:
    """What it selects by; nothing where it selects no pods."""
    return readable("service", raw, lambda service: tuple(sorted((service["spec"].get("selector") or {}).items())))


def read_workload(raw: Raw) -> LabelSelector | Unreadable:
    """The selector of a ReplicationController, ReplicaSet or StatefulSet."""
    return readable("workload", raw, _workload)


def read_device_class(raw: Raw) -> frozenset[str] | Unreadable:
    """The extended resources by which pods may request it: that of its name, and one that it may map besides."""
    return readable("deviceclass", raw, _mapped)


def read_slice(raw: Raw) -> str | Unreadable:
    """The node whose GPUs NVIDIA's DRA driver lists in it; nothing where it is another's."""
    return readable("resourceslice", raw, lambda slice_: _node_of(slice_["spec"]))


def _node_of(spec: Raw) -> str:
    return str(spec.get("nodeName") or "") if spec["driver"] == DRA_DRIVER else ""


def _mapped(raw: Raw) -> frozenset[str]:
    named = str(raw["spec"].get("extendedResourceName") or "")
    return frozenset({f"{OF_DEVICE_CLASS}{raw['metadata']['name']}", named} - {""})


def _claim(raw: Raw) -> ClaimView:
    metadata, spec, status = raw["metadata"], raw["spec"], raw.get("status") or {}
    annotations = metadata.get("annotations") or {}
    owner: Raw = next((entry for entry in metadata.get("ownerReferences") or () if entry.get("controller")), {})
    return ClaimView(
        volume=spec.get("volumeName") or "",
        bound=BIND_COMPLETED in annotations,
        storage_class=annotations.get(OLD_CLASS, spec.get("storageClassName")) or "",
        selected_node=annotations.get(SELECTED_NODE) or "",
        lost=status.get("phase") == "Lost",
        deleting=bool(metadata.get("deletionTimestamp")),
        one_pod_only="ReadWriteOncePod" in (spec.get("accessModes") or ()),
        owner_uid=owner.get("uid", ""),
        uid=metadata.get("uid", ""),
        storage=_storage(spec, (spec.get("resources") or {}).get("requests")),
        selector=label_selector(spec.get("selector")),
    )


def _volume(raw: Raw) -> VolumeView:
    metadata, spec, status = raw["metadata"], raw["spec"], raw.get("status") or {}
    required = (spec.get("nodeAffinity") or {}).get("required")
    kept_for = spec.get("claimRef")
    return VolumeView(
        node_affinity=None if required is None else node_selector(required),
        zones=tuple(_zones(metadata.get("labels") or {})),
        storage_class=(metadata.get("annotations") or {}).get(OLD_CLASS, spec.get("storageClassName")) or "",
        available=status.get("phase") == "Available",
        claim=None if kept_for is None else _claim_key(kept_for),
        storage=_storage(spec, spec.get("capacity")),
        labels=labels(metadata),
        deleting=bool(metadata.get("deletionTimestamp")),
    )


def _claim_key(reference: Raw) -> tuple[str, str, str]:
    return (reference.get("namespace") or "", reference.get("name") or "", reference.get("uid") or "")


def _storage(spec: Raw, amounts: Raw | None) -> Storage:
    return Storage(
        size=parse_quantity((amounts or {}).get("storage", 0)).rounded_up,
        modes=tuple(spec.get("accessModes") or ()),
        block=spec.get("volumeMode") == "Block",
        attributes_class=spec.get("volumeAttributesClassName") or "",
    )


def _zones(labels: Mapping[str, str]) -> Iterable[tuple[str, tuple[str, ...]]]:
    """A malformed label counts as absent, as for kube-scheduler."""
    for label in ZONE_LABELS:
        values = tuple(value.strip() for value in labels[label].split(ZONE_DELIMITER)) if label in labels else ()
        if values and all(values):
            yield label, values


def _storage_class(raw: Raw) -> StorageClassView:
    return StorageClassView(
        delayed=raw.get("volumeBindingMode") == "WaitForFirstConsumer",
        provisioner=raw.get("provisioner") or "",
        topologies=tuple(
            tuple(
                Requirement(key=entry["key"], operator="In", values=tuple(entry.get("values") or ()))
                for entry in term.get("matchLabelExpressions") or ()
            )
            for term in raw.get("allowedTopologies") or ()
        ),
    )


def _workload(raw: Raw) -> LabelSelector:
    selector = raw["spec"].get("selector") or {}
    plain = "matchLabels" not in selector and "matchExpressions" not in selector
    return label_selector({"matchLabels": selector} if plain else selector) or LabelSelector()
