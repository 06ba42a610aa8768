"""Volumes: what is known about claims, volumes and classes; what is not known passes, and is named."""

import pytest

from controller.api.storage import read_volume
from controller.model.scheduling import (
    FILTERS,
    ClaimView,
    FilterProfile,
    VolumeView,
)
from tests.builders.objects import Json
from tests.controller.simulator.storage import NODES, OLD_ZONE, claim, cluster, using, volume
from tests.controller.simulator.words import a_node, a_pod, fits, state, verdicts


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
        (volume(zone="b____c"), ["a", "b", "bare"]),  # malformed: it constrains nothing
    ],
)
def test_where_a_bound_volume_is(there: VolumeView, expected: list[str]) -> None:
    assert fits(cluster({"c": claim("v")}, {"v": there}), using("c"), *NODES) == expected


def test_a_volume_does_not_constrain_fields_of_nodes() -> None:
    """As for the scheduler, which compares labels of volumes alone."""
    field = {"key": "metadata.name", "operator": "In", "values": ["elsewhere"]}
    raw = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [field]}]}}}
    there = read_volume({"metadata": {"name": "v"}, "spec": raw, "status": {"phase": "Bound"}})
    assert isinstance(there, VolumeView)

    assert fits(cluster({"c": claim("v")}, {"v": there}), using("c"), *NODES) == list(NODES)


def test_the_message_names_what_is_wrong() -> None:
    assert verdicts(cluster({"c": claim("v")}, {"v": volume(only="b")}), using("c"), "a") == [
        "VolumeBinding: node(s) didn't match PersistentVolume's node affinity"
    ]
    assert verdicts(cluster({"c": claim("v")}, {"v": volume(zone="b")}), using("c"), "a") == [
        "VolumeZone: node(s) had no available volume zone"
    ]
    assert verdicts(cluster({"c": claim(storage_class="in-b")}), using("c"), "a") == [
        "VolumeBinding: node(s) didn't find available persistent volumes to bind"
    ]


def test_a_claim_for_one_pod_only() -> None:
    alone = {"c": claim("v", spec={"accessModes": ["ReadWriteOncePod"]})}

    assert fits(cluster(alone, {"v": volume()}), using("c"), *NODES) == list(NODES)
    assert verdicts(cluster(alone, {"v": volume()}, using("c", name="e", on="a")), using("c"), "b") == [
        "VolumeRestrictions: node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
        "already in-use by another pod"
    ]
    shared = {"c": claim("v", spec={"accessModes": ["ReadWriteOnce"]})}
    assert fits(cluster(shared, {"v": volume()}, using("c", name="e", on="a")), using("c"), *NODES) == list(NODES)


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
def test_plugins_that_are_switched_off_refuse_nothing(without: set[str], words: str) -> None:
    left = tuple(name for name in FILTERS if name not in without)
    profile = FilterProfile(filters=left, prefilters=left)

    assert verdicts(cluster(profile=profile), using("c"), "a") == [words]
