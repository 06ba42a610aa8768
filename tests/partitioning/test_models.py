"""The catalogue agrees with itself and with NVIDIA's published rules, and a node's labels lead to the right model."""

import json
import math
from importlib import resources

import pytest

from partitioning.models import (
    UNKNOWN_ID,
    GpuModel,
    ProfileSpec,
    known_models,
    known_products,
    model_for_name,
    model_for_product,
    model_from_report,
)
from partitioning.profiles import MigProfile, never_together
from sandbox.driver.boards import Board

MODELS = known_models()
MIG_MODELS = [model for model in MODELS if model.mig_capable]


def named(key: str) -> GpuModel:
    return next(model for model in MODELS if model.key == key)


def spec(name: str, nvml_index: int, size: int, starts: tuple[int, ...]) -> ProfileSpec:
    parsed = MigProfile.parse(name)
    return ProfileSpec(
        name=name,
        profile_id=nvml_index,
        nvml_index=nvml_index,
        compute_slices=parsed.compute_slices,
        size=size,
        memory_mib=None,
        sm_count=None,
        max_instances=len(starts),
        starts=starts,
    )


def test_the_catalogue_names_its_sources_date_and_licence() -> None:
    facts = json.loads(resources.files("partitioning").joinpath("catalogue.json").read_text(encoding="utf-8"))
    assert facts["sources"]
    assert facts["compiled"] == "2026-11-26"
    assert "Apache-2.0" in facts["licence"]


def test_all_mig_models_are_there_and_keys_are_unique() -> None:
    assert len(MIG_MODELS) == 19
    assert len({model.key for model in MODELS}) == len(MODELS)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.key)
def test_every_name_and_its_label_lead_to_one_model_only(model: GpuModel) -> None:
    for name in model.names:
        assert model_for_name(name) is model
        assert model_for_product(name.replace(" ", "-")) is model
    assert model.product in known_products()


@pytest.mark.parametrize("model", MIG_MODELS, ids=lambda model: model.key)
def test_profiles_of_a_model_are_consistent(model: GpuModel) -> None:
    for row in model.profiles:
        assert MigProfile.parse(row.name).compute_slices == row.compute_slices
        assert all(start >= 0 and start + row.size <= model.slots for start in row.starts)
        assert bool(row.starts) == bool(row.size)
        if row.starts and row.max_instances > 1:
            fitting, free_from = 0, 0
            for start in sorted(row.starts):
                if start >= free_from:
                    fitting, free_from = fitting + 1, start + row.size
            assert fitting == row.max_instances
    names = [row.name for row in model.profiles]
    aliases = [alias for row in model.profiles for alias in row.aliases]
    assert len({*names, *aliases}) == len(names) + len(aliases)


@pytest.mark.parametrize("model", MIG_MODELS, ids=lambda model: model.key)
def test_exclusive_groups_match_the_names(model: GpuModel) -> None:
    media = {row.name for row in model.profiles if never_together(row.name, row.name)}
    assert set().union(*model.exclusive) == media
    assert all(row.max_instances == 1 for row in model.profiles if row.name in media)


@pytest.mark.parametrize(
    ("key", "confirmed"),
    [("A100-40GB", True), ("B200-180GB", True), ("H20-96GB", False), ("RTX-PRO-5000-BLACKWELL-48GB", False)],
)
def test_a_model_with_unseen_placements_is_not_confirmed(key: str, confirmed: bool) -> None:
    assert named(key).confirmed is confirmed


def test_an_unpublished_profile_shows_it_by_its_values() -> None:
    row = named("RTX-PRO-4500-BLACKWELL-32GB").profiles[0]
    assert (row.profile_id, row.size, row.starts) == (UNKNOWN_ID, 0, ())


@pytest.mark.parametrize(
    ("label", "key"),
    [
        ("NVIDIA-A100-SXM4-40GB", "A100-40GB"),
        ("A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA-A100-80GB-PCIe", "A100-80GB"),
        ("NVIDIA-H100-80GB-HBM3", "H100-80GB"),
        ("NVIDIA-H100-PCIe", "H100-80GB"),
        ("NVIDIA-H100-NVL", "H100-94GB"),
        ("NVIDIA-A30", "A30-24GB"),
        ("NVIDIA-A10", "A10"),
        ("NVIDIA-A10G", "A10G"),
        ("Tesla-T4", "T4"),
        ("NVIDIA-A100-SXM4-40GB-SHARED", "A100-40GB"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "A100-40GB"),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED", "A100-40GB"),
        ("NVIDIA-A30-MIG-1g.6gb.me", "A30-24GB"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition-MIG-1g.24gb-me", "RTX-PRO-6000-BLACKWELL-96GB"),
        ("NVIDIA-L40S-SHARED", "L40S"),
    ],
)
def test_a_product_label_leads_to_its_model_whatever_its_suffix(label: str, key: str) -> None:
    assert model_for_product(label) is named(key)


@pytest.mark.parametrize("label", ["", "NVIDIA", "NVIDIA-A100", "NVIDIA-A100-SXM4-40GBX", "-SHARED", "GeForce-256"])
def test_an_unknown_label_leads_to_none(label: str) -> None:
    assert model_for_product(label) is None


def test_aliases_lead_to_the_profile_and_names_win_over_aliases() -> None:
    assert named("A100-80GB").profile("7g.79gb") is named("A100-80GB").profile("7g.80gb")
    assert named("A100-80GB").profile("8g.80gb") is None
    assert named("GB200-186GB").profile("1g.24gb") is named("GB200-186GB").profile("1g.23gb")


def test_a_report_keeps_what_the_driver_returns_and_understands_catalogued_names() -> None:
    reported = model_from_report("NVIDIA A100 80GB PCIe", 80994, [spec("7g.79gb", 4, 8, (0,))])
    found = reported.profile("7g.80gb")
    assert found is not None
    assert (found.name, found.aliases) == ("7g.79gb", ("7g.80gb",))
    assert (reported.key, reported.memory_mib, reported.slots) == ("A100-80GB", 80994, 8)
    assert (reported.compute_capability, reported.architecture, reported.confirmed) == ((8, 0), "ampere", True)


def test_a_report_of_an_unknown_card_gets_its_rules_from_the_names() -> None:
    reported = model_from_report(
        "NVIDIA R900",
        300000,
        [spec("1g.40gb", 0, 1, (0, 1)), spec("1g.40gb+me", 7, 1, (0, 1)), spec("2g.80gb", 1, 2, (0,))],
    )
    assert (reported.key, reported.slots, reported.compute_slices) == ("NVIDIA R900", 2, 2)
    assert reported.exclusive == (frozenset({"1g.40gb+me"}),)
    assert reported.compute_capability == (8, 0)
    assert model_from_report("NVIDIA R100", 1000, []).compute_capability == (0, 0)
    assert model_from_report("NVIDIA R100", 1000, [], compute_capability=(11, 0)).compute_capability == (11, 0)


def test_equal_reports_are_one_object() -> None:
    rows = named("H100-80GB").profiles
    one = model_from_report("NVIDIA H100 80GB HBM3", 81559, rows)
    assert model_from_report("NVIDIA H100 80GB HBM3", 81559, reversed(rows)) is one
    assert model_from_report("NVIDIA H100 80GB HBM3", 81558, rows) is not one


def test_a_report_makes_an_unconfirmed_model_usable() -> None:
    reported = model_from_report("NVIDIA-H20-SHARED", 97871, named("H100-96GB").profiles)
    assert reported.key == "H20-96GB"
    assert reported.confirmed


def test_a_report_without_placements_stays_unconfirmed() -> None:
    assert not model_from_report("NVIDIA R100", 1000, [spec("1g.40gb", 0, 1, ())]).confirmed


def nvidias_name(model: GpuModel, memory_mib: int) -> int:
    """The GB in a profile's name, as NVIDIA's mig-parted and its libraries calculate it."""
    eighths = math.ceil(memory_mib / model.memory_mib * 8)
    return math.floor(eighths / 8 * math.ceil(model.memory_mib / 1024) + 0.5)


@pytest.mark.parametrize("model", [m for m in known_models() if m.slots == 8], ids=lambda m: m.key)
def test_the_memory_of_a_model_gives_the_names_of_its_profiles(model: GpuModel) -> None:
    names = {spec.name: nvidias_name(model, Board(model=model).memory_of(spec)) for spec in model.profiles}
    assert names == {name: MigProfile.parse(name).memory_gb for name in names}
