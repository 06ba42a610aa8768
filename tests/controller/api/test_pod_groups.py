"""How pods declare that they belong together."""

from typing import Any

import pytest

from controller.api.pod_groups import GangMark, gang_of


@pytest.mark.parametrize(
    ("labels", "annotations", "expected"),
    [
        ({}, {}, GangMark()),
        (
            {"kueue.x-k8s.io/pod-group-name": "train"},
            {"kueue.x-k8s.io/pod-group-total-count": "4"},
            GangMark("train", 4),
        ),
        ({}, {"scheduling.k8s.io/group-name": "train"}, GangMark("train")),
        (
            {},
            {"scheduling.volcano.sh/group-name": "train", "scheduling.volcano.sh/group-min-member": "3"},
            GangMark("train", 3),
        ),
        ({"scheduling.x-k8s.io/pod-group": "train"}, {}, GangMark("train")),
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

    assert gang_of(raw) == GangMark("train")
