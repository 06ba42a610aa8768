"""The MIG profiles of a model are one text in a status: what writes it and what reads it agree."""

import pytest
from pydantic import ValidationError

from crds.v1alpha1.status import ModelReport, ProfileReport, profiles_of

PROFILES = [
    ProfileReport(name="1g.10gb", id=19, slices=1, size=1, starts=(0, 1), memory_mib=9984, max_instances=1),
    ProfileReport(name="7g.80gb", id=0, slices=7, size=8, starts=()),
]
TEXT = "1g.10gb id 19 slices 1 size 1 9984 MiB most 1 at 0,1; 7g.80gb id 0 slices 7 size 8 at "


def model(profiles: str) -> ModelReport:
    return ModelReport.model_validate({"name": "NVIDIA H100 80GB HBM3", "memoryMiB": 81559, "profiles": profiles})


def test_a_text_of_profiles_reads_as_what_wrote_it() -> None:
    assert "; ".join(map(str, PROFILES)) == TEXT
    assert profiles_of(model(TEXT).profiles or "") == PROFILES
    assert profiles_of("") == []


@pytest.mark.parametrize("wrong", ["1g.10gb", TEXT.replace("at 0,1", "at a"), TEXT.replace("id 19", "id x"), "; "])
def test_a_text_that_is_no_profile_is_refused(wrong: str) -> None:
    with pytest.raises(ValidationError, match="profiles"):
        model(wrong)
