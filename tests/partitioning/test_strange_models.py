"""Models that a node reports and no catalogue knows: their geometries are enumerated within a limit, or not at all."""

import pytest

from partitioning.models import GpuModel, ProfileSpec, model_from_report
from partitioning.states import enumerable, state_table
from tests.builders.models import MODELS
from tests.counted import calls
from tests.drawn import thorough

PLANNABLE = [model for model in MODELS.values() if model.mig_capable and model.confirmed]


def model(profiles: int, size: int = 1, slots: int = 16, name: str = "strange") -> GpuModel:
    """Each of its profiles may be at every start."""
    specs = [
        ProfileSpec(
            name=f"{size}g.{number}gb",
            profile_id=number,
            nvml_index=number,
            compute_slices=size,
            size=size,
            memory_mib=1000,
            sm_count=None,
            max_instances=slots,
            starts=tuple(range(slots - size + 1)),
        )
        for number in range(1, profiles + 1)
    ]
    return model_from_report(f"{name} {profiles} {size} {slots}", 81920, specs)


@pytest.mark.parametrize("known", PLANNABLE, ids=lambda model: model.key)
def test_known_models_are_far_from_the_limit(known: GpuModel) -> None:
    assert enumerable(known)


@pytest.mark.parametrize("profiles", [1, 2, 3])
def test_few_profiles_of_a_gpu_with_many_slices_are_enumerated(profiles: int) -> None:
    strange = model(profiles)

    assert enumerable(strange)
    assert max(state_table(strange).pareto(0)) == (16, *[0] * (profiles - 1))


@pytest.mark.parametrize(("profiles", "size"), [(4, 1), (8, 1), *thorough((32, 1), (32, 2))])
def test_what_grows_beyond_any_limit_is_given_up_soon(profiles: int, size: int) -> None:
    strange = model(profiles, size, name="endless")

    assert calls(lambda: enumerable(strange)) < 2_000_000
    assert not enumerable(strange)
