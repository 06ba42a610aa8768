"""Claims that wait for their first consumer: which free volume fits, and which is chosen."""

from typing import Any

import pytest

from controller.api.storage import read_volume
from controller.model.scheduling import (
    ClaimView,
    VolumeView,
)
from tests.builders.objects import Json
from tests.controller.simulator.storage import (
    CLASSES,
    LIMITS,
    NODES,
    ZONE,
    claim,
    cluster,
    using,
    volume,
)
from tests.controller.simulator.words import fits


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


def waiting(size: str = "2Gi", **spec: Any) -> ClaimView:
    requests = {"resources": {"requests": {"storage": size}}}
    return claim(
        storage_class="local", metadata={"uid": "u"}, spec={"accessModes": ["ReadWriteOnce"], **requests, **spec}
    )


def volume_of(size: str = "2Gi", *, labels: Json | None = None, only: str = "", **spec: Any) -> VolumeView:
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
        (waiting(), volume_of(), True),
        (waiting(), volume_of("2047Mi"), False),
        (waiting(volumeMode="Filesystem"), volume_of(), True),
        (waiting(volumeMode="Block"), volume_of(), False),
        (waiting(accessModes=["ReadWriteMany"]), volume_of(), False),
        (waiting(volumeAttributesClassName="fast"), volume_of(), False),
        (waiting(selector={"matchLabels": {"a": "b"}}), volume_of(), False),
        (waiting(selector={"matchLabels": {"a": "b"}}), volume_of(labels={"a": "b"}), True),
        (waiting(), volume_of(gone=True), False),
        # Reserved: for this claim, for it in an earlier life, for another.
        (waiting(accessModes=["ReadWriteMany"]), volume_of(claimRef={"namespace": "team", "name": "c"}), True),
        (waiting(), volume_of(claimRef={"namespace": "team", "name": "c", "uid": "before"}), False),
        (waiting(), volume_of(claimRef={"namespace": "team", "name": "d"}), False),
    ],
)
def test_which_free_volume_will_do(wants: ClaimView, offers: VolumeView, fit: bool) -> None:
    assert bool(fits(cluster({"c": wants}, {"v": offers}), using("c"), *NODES)) is fit


def test_the_volume_that_is_kept_for_a_claim_decides() -> None:
    volumes = {"v": volume_of(), "w": volume_of(only="b", claimRef={"namespace": "team", "name": "c"})}

    assert fits(cluster({"c": waiting()}, volumes), using("c"), *NODES) == ["b"]


def test_the_smallest_claim_chooses_first_and_takes_the_smallest() -> None:
    claims = {"c": waiting("5Gi"), "d": waiting("1Gi")}

    assert fits(cluster(claims, {"v": volume_of("2Gi"), "w": volume_of("9Gi")}), using(*claims), *NODES) == list(NODES)
    assert fits(cluster(claims, {"v": volume_of("6Gi"), "w": volume_of("9Gi")}), using(*claims), *NODES) == list(NODES)
    assert fits(cluster(claims, {"v": volume_of("2Gi"), "w": volume_of("4Gi")}), using(*claims), *NODES) == []
