"""Volumes, claims and storage classes for the simulator's tests, and a cluster of three nodes that has them."""

from typing import Any

from controller.api.storage import read_claim, read_storage_class, read_volume
from controller.model.scheduling import (
    ClaimView,
    FilterProfile,
    SchedulingContext,
    StorageClassView,
    VolumeView,
)
from tests.controller.simulator.words import a_node, a_pod, state

ZONE = "topology.kubernetes.io/zone"


OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"


LIMITS = "how many volumes a node can attach"
NODES = ("a", "b", "bare")


def claim(volume: str = "", *, bound: bool | None = None, storage_class: str = "late", **more: Any) -> ClaimView:
    raw = {
        "metadata": {"name": "c", "annotations": {}, **more.pop("metadata", {})},
        "spec": {"volumeName": volume, "storageClassName": storage_class, **more.pop("spec", {})},
        "status": {"phase": more.pop("phase", "Pending")},
    }
    if volume and bound is not False:
        raw["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
    read = read_claim(raw)
    assert isinstance(read, ClaimView)
    return read


def volume(
    *, zone: str = "", label: str = ZONE, only: str = "", phase: str = "Bound", storage_class: str = "late"
) -> VolumeView:
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [only]}]}]
    raw = {
        "metadata": {"name": "v", "labels": {label: zone} if zone else {}},
        "spec": {
            "storageClassName": storage_class,
            **({"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if only else {}),
        },
        "status": {"phase": phase},
    }
    read = read_volume(raw)
    assert isinstance(read, VolumeView)
    return read


def storage_class(mode: str = "WaitForFirstConsumer", *zones: str, provisioner: str = "disks") -> StorageClassView:
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": list(zones)}]}] if zones else []
    raw = {"metadata": {"name": "s"}, "volumeBindingMode": mode, "provisioner": provisioner}
    read = read_storage_class({**raw, "allowedTopologies": topologies})
    assert isinstance(read, StorageClassView)
    return read


CLASSES = {
    "late": storage_class(),
    "now": storage_class("Immediate"),
    "in-b": storage_class("WaitForFirstConsumer", "b", "c"),
    "local": storage_class(provisioner="kubernetes.io/no-provisioner"),
}


def cluster(
    claims: dict[str, ClaimView] | None = None,
    volumes: dict[str, VolumeView] | None = None,
    *there: Any,
    profile: FilterProfile | None = None,
) -> Any:
    context = SchedulingContext(
        claims={("team", name): one for name, one in (claims or {}).items()},
        volumes=volumes or {},
        storage_classes=CLASSES,
    )
    nodes = [a_node("a", at={ZONE: "a"}), a_node("b", at={ZONE: "b"}), a_node("bare")]
    return state(nodes, there, context=context, profile=profile)


def using(*claims: str, name: str = "p", **more: Any) -> Any:
    volumes = [{"name": f"v{number}", "persistentVolumeClaim": {"claimName": one}} for number, one in enumerate(claims)]
    return a_pod(name, spec={"volumes": volumes}, **more)
