"""Claims, volumes, classes, services, workloads and device classes from raw JSON."""

from typing import Any

import pytest

from controller.api.reading import Unreadable
from controller.api.storage import (
    read_claim,
    read_device_class,
    read_namespace,
    read_service,
    read_slice,
    read_storage_class,
    read_volume,
    read_workload,
)
from controller.model.scheduling import (
    ClaimView,
    LabelSelector,
    NodeSelectorTerm,
    Requirement,
    Storage,
    StorageClassView,
    VolumeView,
)

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"


def requirement(key: str, *values: str, operator: str = "In") -> Requirement:
    return Requirement(key=key, operator=operator, values=values)


def test_a_namespace() -> None:
    assert read_namespace({"metadata": {"name": "n", "labels": {"a": "b"}}}) == {"a": "b"}
    assert read_namespace({"metadata": {"name": "n"}}) == {}


@pytest.mark.parametrize(
    ("metadata", "spec", "expected"),
    [
        ({}, {}, ClaimView()),
        ({}, {"volumeName": "v", "storageClassName": "s"}, ClaimView(volume="v", storage_class="s")),
        (
            {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            {"volumeName": "v"},
            ClaimView(volume="v", bound=True),
        ),
        (
            {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
            {"storageClassName": "s"},
            ClaimView(storage_class="old"),
        ),
        ({"annotations": {"volume.kubernetes.io/selected-node": "n"}}, {}, ClaimView(selected_node="n")),
        (
            {"uid": "u"},
            {
                "accessModes": ["ReadWriteOncePod"],
                "resources": {"requests": {"storage": "1.5Gi"}},
                "volumeMode": "Block",
                "volumeAttributesClassName": "fast",
                "selector": {"matchLabels": {"a": "b"}},
            },
            ClaimView(
                uid="u",
                one_pod_only=True,
                storage=Storage(size=3 << 29, modes=("ReadWriteOncePod",), block=True, attributes_class="fast"),
                selector=LabelSelector(requirements=(requirement("a", "b"),)),
            ),
        ),
        ({"ownerReferences": [{"uid": "x"}, {"uid": "u", "controller": True}]}, {}, ClaimView(owner_uid="u")),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {}, ClaimView(deleting=True)),
    ],
)
def test_a_claim(metadata: Json, spec: Json, expected: ClaimView) -> None:
    assert read_claim({"metadata": {"name": "c", **metadata}, "spec": spec}) == expected


@pytest.mark.parametrize(
    ("spec", "phase", "expected"),
    [
        ({"storageClassName": "s"}, "Available", VolumeView(storage_class="s", available=True)),
        ({"storageClassName": "s"}, "Bound", VolumeView(storage_class="s")),
        ({"claimRef": {"name": "c"}}, "Pending", VolumeView(claim=("", "c", ""))),
        ({"claimRef": {"namespace": "n", "name": "c", "uid": "u"}}, "Bound", VolumeView(claim=("n", "c", "u"))),
        (
            {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"},
            "Released",
            VolumeView(storage=Storage(size=1 << 30, modes=("ReadWriteOnce",))),
        ),
        ({}, "Released", VolumeView()),
        ({"nodeAffinity": {}}, "Bound", VolumeView()),
        (
            {
                "nodeAffinity": {
                    "required": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}]
                    }
                }
            },
            "Bound",
            VolumeView(node_affinity=(NodeSelectorTerm(labels=(requirement(ZONE, "a"),)),)),
        ),
    ],
)
def test_a_volume(spec: Json, phase: str, expected: VolumeView) -> None:
    assert read_volume({"metadata": {"name": "v"}, "spec": spec, "status": {"phase": phase}}) == expected


@pytest.mark.parametrize(
    ("label", "values"), [("a", ("a",)), ("a__b", ("a", "b")), (" a __b", ("a", "b")), ("a____b", None), ("", None)]
)
def test_the_zones_of_a_volume(label: str, values: tuple[str, ...] | None) -> None:
    raw = {"metadata": {"name": "v", "labels": {ZONE: label, "other": "x"}}, "spec": {}}

    read = read_volume(raw)
    assert isinstance(read, VolumeView)
    assert read.zones == (((ZONE, values),) if values else ())
    assert read.labels == (("other", "x"), (ZONE, label))


def test_a_storage_class() -> None:
    raw = {
        "metadata": {"name": "s"},
        "provisioner": "disks",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}, {}],
    }
    assert read_storage_class(raw) == StorageClassView(
        delayed=True, provisioner="disks", topologies=((requirement(ZONE, "a", "b"),), ())
    )
    assert read_storage_class({"metadata": {"name": "s"}}) == StorageClassView()


def test_what_selects_pods() -> None:
    service = {"metadata": {"name": "s"}, "spec": {"selector": {"b": "2", "a": "1"}}}
    assert read_service(service) == (("a", "1"), ("b", "2"))
    assert read_service({"metadata": {"name": "s"}, "spec": {}}) == ()

    both = LabelSelector(requirements=(requirement("a", "1"), requirement("b", operator="Exists")))
    expressions = [{"key": "b", "operator": "Exists"}]
    selector = {"matchLabels": {"a": "1"}, "matchExpressions": expressions}
    assert read_workload({"metadata": {"name": "w"}, "spec": {"selector": selector}}) == both
    plain = {"metadata": {"name": "w"}, "spec": {"selector": {"a": "1"}}}
    assert read_workload(plain) == LabelSelector(requirements=(requirement("a", "1"),))


def test_a_device_class() -> None:
    by_name = "deviceclass.resource.kubernetes.io/d"
    mapping = {"metadata": {"name": "d"}, "spec": {"extendedResourceName": "a.b/c"}}
    assert read_device_class(mapping) == frozenset({"a.b/c", by_name})
    assert read_device_class({"metadata": {"name": "d"}, "spec": {}}) == frozenset({by_name})


def test_a_slice_names_the_node_of_nvidias_driver_for_gpus() -> None:
    def read(**spec: Any) -> object:
        return read_slice({"metadata": {"name": "s"}, "spec": spec})

    assert read(driver="gpu.nvidia.com", nodeName="n1") == "n1"
    assert read(driver="gpu.nvidia.com", allNodes=True) == ""
    assert read(driver="compute-domain.nvidia.com", nodeName="n1") == ""
    assert isinstance(read(nodeName="n1"), Unreadable)


@pytest.mark.parametrize(
    "read",
    [read_claim, read_volume, read_service, read_workload, read_device_class, read_slice],
)
def test_broken_objects_are_values_with_a_reason(read: Any) -> None:
    found = read({"metadata": {"name": "x"}, "spec": 3})

    assert isinstance(found, Unreadable)
    assert found.name == "x"
