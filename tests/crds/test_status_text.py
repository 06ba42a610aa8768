"""What a status says in one text today, dumps of earlier ones say in fields: both read alike."""

from typing import Any

import pytest
from pydantic import ValidationError

from crds.v1alpha1.status import GpuStatus, ModelReport, profiles_of

FIELDS = {"name": "1g.10gb", "id": 19, "slices": 1, "size": 1, "starts": [0, 1], "memoryMiB": 9984, "maxInstances": 1}
BARE = {"name": "7g.80gb", "id": 0, "slices": 7, "size": 8, "starts": []}


def model(profiles: Any) -> ModelReport:
    return ModelReport.model_validate({"name": "NVIDIA H100 80GB HBM3", "memoryMiB": 81559, "profiles": profiles})


def test_profiles_in_fields_read_as_their_text() -> None:
    text = "1g.10gb id 19 slices 1 size 1 9984 MiB most 1 at 0,1; 7g.80gb id 0 slices 7 size 8 at "

    assert model([FIELDS, BARE]) == model(text)
    assert [each.name for each in profiles_of(text)] == ["1g.10gb", "7g.80gb"]
    assert model([]).profiles is None


@pytest.mark.parametrize(
    "wrong", [["1g.10gb"], [{}], [{**FIELDS, "starts": None}], [{**FIELDS, "name": "a b"}], [{**FIELDS, "id": "x"}]]
)
def test_fields_that_are_no_profile_are_refused(wrong: Any) -> None:
    with pytest.raises(ValidationError, match="profiles"):
        model(wrong)


def test_what_is_as_usual_reads_as_left_out() -> None:
    gpu = {"index": 0, "state": "Ready"}
    assert GpuStatus.model_validate({**gpu, "health": "OK"}) == GpuStatus.model_validate(gpu)
