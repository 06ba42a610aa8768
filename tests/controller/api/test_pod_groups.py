"""How pods declare that they belong together."""

from typing import Any

import pytest

from controller.api.pod_groups import COSCHEDULING, KUBERNETES, VOLCANO, GangMark, gang_of, read_pod_group
from controller.api.reading import Unreadable


@pytest.mark.parametrize(
    ("labels", "annotations", "expected"),
    [
        ({}, {}, GangMark()),
        (
            {"kueue.x-k8s.io/pod-group-name": "train"},
            {"kueue.x-k8s.io/pod-group-total-count": "4"},
            GangMark("train", 4),
        ),
        ({}, {"scheduling.k8s.io/group-name": "train"}, GangMark("train", 0, VOLCANO)),
        (
            {},
            {"scheduling.volcano.sh/group-name": "train", "scheduling.volcano.sh/group-min-member": "3"},
            GangMark("train", 3, VOLCANO),
        ),
        ({"scheduling.x-k8s.io/pod-group": "train"}, {}, GangMark("train", 0, COSCHEDULING)),
        (
            {"kueue.x-k8s.io/pod-group-name": "web"},
            {"kueue.x-k8s.io/pod-group-total-count": "3", "kueue.x-k8s.io/pod-group-serving": "true"},
            GangMark(),
        ),
        (
            {"kueue.x-k8s.io/pod-group-name": "web"},
            {"kueue.x-k8s.io/pod-group-total-count": "3", "kueue.x-k8s.io/pod-group-fast-admission": "true"},
            GangMark(),
        ),
        (
            {"kueue.x-k8s.io/pod-group-name": "a"},
            {"kueue.x-k8s.io/pod-group-total-count": "9" * 5000},
            GangMark("a"),
        ),
        ({"kueue.x-k8s.io/pod-group-name": "a"}, {"kueue.x-k8s.io/pod-group-total-count": "four"}, GangMark("a")),
    ],
)
def test_marks_of_batch_schedulers_are_read(
    labels: dict[str, str], annotations: dict[str, str], expected: GangMark
) -> None:
    assert gang_of({"metadata": {"labels": labels, "annotations": annotations}, "spec": {}}) == expected


def test_the_field_of_the_api_outranks_marks() -> None:
    raw: dict[str, Any] = {
        "metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "other"}},
        "spec": {"schedulingGroup": {"podGroupName": "train"}},
    }

    assert gang_of(raw) == GangMark("train", 0, KUBERNETES)


@pytest.mark.parametrize(
    ("spec", "least"),
    [
        ({"schedulingPolicy": {"basic": {}}}, 0),
        ({"schedulingPolicy": {"gang": {"minCount": 4}}}, 4),
        ({"minMember": 3}, 3),
        ({"minMember": -3}, 0),
        ({}, 0),
    ],
)
def test_how_many_pods_of_a_pod_group_must_start_together(spec: dict[str, Any], least: int) -> None:
    assert read_pod_group({"metadata": {"name": "train", "namespace": "team"}, "spec": spec}) == least


def test_a_pod_group_that_cannot_be_read_has_a_reason() -> None:
    found = read_pod_group({"metadata": {"name": "train"}, "spec": {"minMember": "many"}})
    assert isinstance(found, Unreadable)
