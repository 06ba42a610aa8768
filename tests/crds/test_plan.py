"""Effective items and their hashes, and reading objects of newer versions."""

from typing import Any

import pytest
from pydantic import ValidationError

from crds.v1alpha1.plan import GPUPartitionPlan, effective_items, item_hash


def read(spec: dict[str, Any], **more: Any) -> GPUPartitionPlan:
    return GPUPartitionPlan.read({"metadata": {"name": "n"}, "spec": {"nodeName": "n", **spec}, **more})


WHOLE = {"index": 0, "whole": {}}
CUT = {"index": 0, "mig": {"instances": [{"profile": "1g.10gb", "start": 0}]}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, {}, id="unmanaged"),
        pytest.param({"planned": {"gpus": [CUT]}}, {0: CUT}, id="planned"),
        pytest.param({"gpus": [WHOLE]}, {0: WHOLE}, id="pinned"),
        pytest.param({"gpus": [WHOLE], "planned": {"gpus": [CUT]}}, {0: WHOLE}, id="pinned-wins"),
        pytest.param(
            {"gpus": [{"index": 3, "whole": {}}], "planned": {"gpus": [CUT]}},
            {0: CUT, 3: {"index": 3, "whole": {}}},
            id="both",
        ),
    ],
)
def test_effective_items(spec: dict[str, Any], expected: dict[int, Any]) -> None:
    assert {index: item.wire() for index, item in effective_items(read(spec).spec).items()} == expected


def test_the_hash_is_of_the_content_alone() -> None:
    pinned = effective_items(read({"gpus": [CUT]}).spec)[0]
    planned = effective_items(read({"planned": {"gpus": [CUT]}}).spec)[0]

    assert item_hash(pinned) == item_hash(planned) == item_hash(CUT)
    assert item_hash(pinned) != item_hash(WHOLE)
    assert len(item_hash(WHOLE)) == 12


def test_fields_of_a_newer_version_are_ignored_on_reading() -> None:
    plan = read({"someday": 1}, status={"gpus": [{"index": 0, "state": "Ready", "someday": True}]})

    assert plan.status is not None
    assert plan.status.wire() == {"gpus": [{"index": 0, "state": "Ready"}]}


def test_capital_units_on_the_wire() -> None:
    spec = {"gpus": [{"index": 0, "mps": {"slices": [{"memoryGB": 10, "threadPercent": 50}, {"memoryGiB": 3}]}}]}

    assert read(spec).spec.wire() == {"nodeName": "n", **spec}


def test_a_wrong_type_names_the_field() -> None:
    with pytest.raises(ValidationError, match=r"spec\.gpus\.0\.index"):
        read({"gpus": [{"index": "x", "whole": {}}]})
