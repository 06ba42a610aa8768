"""Volumes: what is known about claims, volumes and classes; what is not known passes, and is named."""

from typing import Any

import pytest

from controller.api.storage import read_claim, read_storage_class, read_volume
from controller.model.scheduling import (
    FILTERS,
    ClaimView,
    FilterProfile,
    SchedulingContext,
    StorageClassView,
    VolumeView,
)
from tests.controller.simulator.words import Json, a_node, a_pod, fits, state, verdicts

ZONE = "topology.kubernetes.io/zone"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
NODES = ("a", "b", "bare")
LIMITS = "how many volumes a node can attach"


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


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (None, 'VolumeRestrictions: persistentvolumeclaim "c" not found'),
        (claim(storage_class="now"), "VolumeBinding: pod has unbound immediate PersistentVolumeClaims"),
        (claim(storage_class="none"), "VolumeBinding: pod has unbound immediate PersistentVolumeClaims"),
        (claim(storage_class=""), "VolumeBinding: pod has unbound immediate PersistentVolumeClaims"),
        (claim("v", bound=False), "VolumeBinding: pod has unbound immediate PersistentVolumeClaims"),
        (
            claim("v", phase="Lost"),
            'VolumeBinding: persistentvolumeclaim "c" bound to non-existent persistentvolume "v"',
        ),
        (
            claim("v", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z", "annotations": {}}),
            'VolumeBinding: persistentvolumeclaim "c" is being deleted',
        ),
        (claim("gone"), 'VolumeZone: persistentvolume "gone" not found'),
    ],
)
def test_claims_that_keep_the_pod_off_every_node(one: ClaimView | None, words: str) -> None:
    found = cluster({"c": one} if one is not None else {}, {"v": volume()})

    assert verdicts(found, using("c"), *NODES) == [words] * 3
    assert found.prefilter(using("c")).refused is not None


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        (volume(), ["a", "b", "bare"]),
        (volume(only="b"), ["b"]),
        # Zone labels: a node without any zone label is in every zone.
        (volume(zone="b"), ["b", "bare"]),
        (volume(zone="b__c"), ["b", "bare"]),
        (volume(zone="b", label=OLD_ZONE), ["b", "bare"]),
        (volume(zone="b____c"), ["a", "b", "bare"]),  # malformed: it says nothing
    ],
)
def test_where_a_bound_volume_is(there: VolumeView, expected: list[str]) -> None:
    assert fits(cluster({"c": claim("v")}, {"v": there}), using("c"), *NODES) == expected


def test_a_volume_says_nothing_of_the_fields_of_nodes() -> None:
    """As for the scheduler, which asks volumes about labels alone."""
    field = {"key": "metadata.name", "operator": "In", "values": ["elsewhere"]}
    raw = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [field]}]}}}
    there = read_volume({"metadata": {"name": "v"}, "spec": raw, "status": {"phase": "Bound"}})
    assert isinstance(there, VolumeView)

    assert fits(cluster({"c": claim("v")}, {"v": there}), using("c"), *NODES) == list(NODES)


def test_it_says_what_is_wrong() -> None:
    assert verdicts(cluster({"c": claim("v")}, {"v": volume(only="b")}), using("c"), "a") == [
        "VolumeBinding: node(s) didn't match PersistentVolume's node affinity"
    ]
    assert verdicts(cluster({"c": claim("v")}, {"v": volume(zone="b")}), using("c"), "a") == [
        "VolumeZone: node(s) had no available volume zone"
    ]
    assert verdicts(cluster({"c": claim(storage_class="in-b")}), using("c"), "a") == [
        "VolumeBinding: node(s) didn't find available persistent volumes to bind"
    ]


@pytest.mark.parametrize(
    ("claims", "volumes", "expected"),
    [
        ({"c": claim()}, {}, ["a", "b", "bare"]),
        ({"c": claim(storage_class="in-b")}, {}, ["b"]),
        ({"c": claim(storage_class="local")}, {}, []),
        (
            {"c": claim(storage_class="local")},
            {"v": volume(phase="Available", storage_class="local")},
            ["a", "b", "bare"],
        ),
        ({"c": claim(storage_class="local")}, {"v": volume(phase="Available", storage_class="local", only="a")}, ["a"]),
        ({"c": claim(storage_class="local")}, {"v": volume(phase="Released", storage_class="local")}, []),
        (
            {"c": claim(storage_class="in-b")},
            {"v": volume(phase="Available", storage_class="in-b", only="a")},
            ["a", "b"],
        ),
        # Two claims cannot have the one free volume.
        (
            {"c": claim(storage_class="local"), "d": claim(storage_class="local")},
            {"v": volume(phase="Available", storage_class="local")},
            [],
        ),
        # A node was chosen for the claim already.
        ({"c": claim(metadata={"annotations": {"volume.kubernetes.io/selected-node": "b"}})}, {}, ["b"]),
    ],
)
def test_claims_that_wait_for_their_first_consumer(
    claims: dict[str, ClaimView], volumes: dict[str, VolumeView], expected: list[str]
) -> None:
    found = cluster(claims, volumes)

    assert fits(found, using(*claims), *NODES) == expected
    made = any(CLASSES[one.storage_class].provisioner == "disks" for one in claims.values())
    assert found.prefilter(using(*claims)).unknown == (
        (LIMITS, "the storage that its claims wait for") if made else (LIMITS,)
    )


def wanting(size: str = "2Gi", **spec: Any) -> ClaimView:
    requests = {"resources": {"requests": {"storage": size}}}
    return claim(
        storage_class="local", metadata={"uid": "u"}, spec={"accessModes": ["ReadWriteOnce"], **requests, **spec}
    )


def offering(size: str = "2Gi", *, labels: Json | None = None, only: str = "", **spec: Any) -> VolumeView:
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [only]}]}]
    offer = {
        "storageClassName": "local",
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
    }
    where = {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}} if only else {}
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if spec.pop("gone", False) else {}
    raw = {"metadata": {"name": "v", "labels": labels or {}, **gone}, "spec": {**offer, **where, **spec}}
    read = read_volume({**raw, "status": {"phase": "Available"}})
    assert isinstance(read, VolumeView)
    return read


@pytest.mark.parametrize(
    ("wants", "offers", "fit"),
    [
        (wanting(), offering(), True),
        (wanting(), offering("2047Mi"), False),
        (wanting(volumeMode="Filesystem"), offering(), True),
        (wanting(volumeMode="Block"), offering(), False),
        (wanting(accessModes=["ReadWriteMany"]), offering(), False),
        (wanting(volumeAttributesClassName="fast"), offering(), False),
        (wanting(selector={"matchLabels": {"a": "b"}}), offering(), False),
        (wanting(selector={"matchLabels": {"a": "b"}}), offering(labels={"a": "b"}), True),
        (wanting(), offering(gone=True), False),
        # Kept for somebody: for this claim, for it in an earlier life, for another.
        (wanting(accessModes=["ReadWriteMany"]), offering(claimRef={"namespace": "team", "name": "c"}), True),
        (wanting(), offering(claimRef={"namespace": "team", "name": "c", "uid": "before"}), False),
        (wanting(), offering(claimRef={"namespace": "team", "name": "d"}), False),
    ],
)
def test_which_free_volume_will_do(wants: ClaimView, offers: VolumeView, fit: bool) -> None:
    assert bool(fits(cluster({"c": wants}, {"v": offers}), using("c"), *NODES)) is fit


def test_the_volume_that_is_kept_for_a_claim_decides() -> None:
    volumes = {"v": offering(), "w": offering(only="b", claimRef={"namespace": "team", "name": "c"})}

    assert fits(cluster({"c": wanting()}, volumes), using("c"), *NODES) == ["b"]


def test_the_smallest_claim_chooses_first_and_takes_the_smallest() -> None:
    claims = {"c": wanting("5Gi"), "d": wanting("1Gi")}

    assert fits(cluster(claims, {"v": offering("2Gi"), "w": offering("9Gi")}), using(*claims), *NODES) == list(NODES)
    assert fits(cluster(claims, {"v": offering("6Gi"), "w": offering("9Gi")}), using(*claims), *NODES) == list(NODES)
    assert fits(cluster(claims, {"v": offering("2Gi"), "w": offering("4Gi")}), using(*claims), *NODES) == []


def test_a_claim_for_one_pod_only() -> None:
    alone = {"c": claim("v", spec={"accessModes": ["ReadWriteOncePod"]})}

    assert fits(cluster(alone, {"v": volume()}), using("c"), *NODES) == list(NODES)
    assert verdicts(cluster(alone, {"v": volume()}, using("c", name="e", node="a")), using("c"), "b") == [
        "VolumeRestrictions: node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod"
    ]
    shared = {"c": claim("v", spec={"accessModes": ["ReadWriteOnce"]})}
    assert fits(cluster(shared, {"v": volume()}, using("c", name="e", node="a")), using("c"), *NODES) == list(NODES)


def test_an_ephemeral_volume_has_a_claim_of_the_pods_own() -> None:
    pod = a_pod("p", spec={"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {}}}]})
    owner: list[Json] = [{"kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}]

    assert verdicts(cluster(), pod, "a") == [
        'VolumeBinding: waiting for ephemeral volume controller to create the persistentvolumeclaim "p-v"'
    ]
    assert verdicts(cluster({"p-v": claim()}), pod, "a") == [
        "VolumeBinding: PVC team/p-v was not created for pod team/p (pod is not owner)"
    ]
    assert fits(cluster({"p-v": claim(metadata={"ownerReferences": owner})}), pod, *NODES) == list(NODES)


def test_volumes_without_claims_do_not_matter() -> None:
    pod = a_pod("p", spec={"volumes": [{"name": "v", "emptyDir": {}}]})

    assert fits(cluster(), pod, *NODES) == list(NODES)
    assert cluster().prefilter(pod).unknown == ()


def test_maps_that_could_not_be_read_are_unknown_and_pass() -> None:
    found = state([a_node("a")])

    assert fits(found, using("c"), "a") == ["a"]
    assert found.prefilter(using("c")).unknown == ("its volumes: claims, volumes and storage classes are not known",)


@pytest.mark.parametrize(
    ("without", "words"),
    [
        ({"VolumeRestrictions"}, 'VolumeBinding: persistentvolumeclaim "c" not found'),
        ({"VolumeRestrictions", "VolumeBinding"}, 'VolumeZone: persistentvolumeclaim "c" not found'),
        (
            {"VolumeRestrictions", "VolumeBinding", "VolumeZone"},
            'NodeVolumeLimits: persistentvolumeclaim "c" not found',
        ),
        ({"VolumeRestrictions", "VolumeBinding", "VolumeZone", "NodeVolumeLimits"}, ""),
    ],
)
def test_plugins_that_are_switched_off_say_nothing(without: set[str], words: str) -> None:
    left = tuple(name for name in FILTERS if name not in without)
    profile = FilterProfile(filters=left, prefilters=left)

    assert verdicts(cluster(profile=profile), using("c"), "a") == [words]
