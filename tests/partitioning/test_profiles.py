"""Profile names: what they mean, which are refused and how, and that text survives the round trip."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioning.models import known_models
from partitioning.profiles import MigProfile, ProfileError, never_together

EVERY_NAME = sorted({spec.name for model in known_models() for spec in model.profiles})


@pytest.mark.parametrize(
    ("text", "compute_slices", "memory_gb", "attributes"),
    [
        ("1g.10gb", 1, 10, ()),
        ("7g.80gb", 7, 80, ()),
        ("1g.10gb+me", 1, 10, ("+me",)),
        ("1g.24gb-me", 1, 24, ("-me",)),
        ("2g.48gb+gfx", 2, 48, ("+gfx",)),
        ("2g.48gb+me.all", 2, 48, ("+me.all",)),
        ("1g.24gb+gfx+me", 1, 24, ("+gfx", "+me")),
    ],
)
def test_a_name_is_taken_apart(text: str, compute_slices: int, memory_gb: int, attributes: tuple[str, ...]) -> None:
    assert MigProfile.parse(text) == MigProfile(
        compute_slices=compute_slices, memory_gb=memory_gb, attributes=attributes
    )


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("", "write <compute slices>g.<memory>gb"),
        ("10gb", "write <compute slices>g.<memory>gb"),
        ("1g", "write <compute slices>g.<memory>gb"),
        ("0g.5gb", "write <compute slices>g.<memory>gb"),
        ("1g.05gb", "write <compute slices>g.<memory>gb"),
        ("1g.5gb.me", "write <compute slices>g.<memory>gb"),
        ("1g.5gb+", "write <compute slices>g.<memory>gb"),
        ("mig-1g.5gb", "write <compute slices>g.<memory>gb"),
        ("1g.5gb\n", "write '1g.5gb'"),
        ("1G.5GB", "write '1g.5gb'"),
        (" 1g.5gb+ME ", "write '1g.5gb+me'"),
        ("1c.3g.20gb", "write '3g.20gb'"),
    ],
)
def test_another_form_is_refused_with_the_text_and_the_right_form(text: str, remedy: str) -> None:
    with pytest.raises(ProfileError) as refused:
        MigProfile.parse(text)
    assert repr(text) in str(refused.value)
    assert remedy in str(refused.value)


@pytest.mark.parametrize("name", EVERY_NAME)
def test_every_catalogued_name_survives_the_round_trip(name: str) -> None:
    assert str(MigProfile.parse(name)) == name


@given(
    st.builds(
        MigProfile,
        compute_slices=st.integers(1, 99),
        memory_gb=st.integers(1, 999),
        attributes=st.lists(st.sampled_from(["+me", "-me", "+gfx", "+me.all", "+new"]), max_size=3).map(tuple),
    )
)
def test_any_profile_survives_the_round_trip(profile: MigProfile) -> None:
    assert MigProfile.parse(str(profile)) == profile


@given(st.text(max_size=12))
def test_any_text_is_either_refused_or_given_back(text: str) -> None:
    try:
        profile = MigProfile.parse(text)
    except ProfileError:
        return
    assert str(profile) == text


def test_profiles_are_ordered_by_compute_then_memory() -> None:
    names = ["2g.10gb", "1g.10gb", "1g.5gb+me", "1g.5gb"]
    assert [str(profile) for profile in sorted(map(MigProfile.parse, names))] == [
        "1g.5gb",
        "1g.5gb+me",
        "1g.10gb",
        "2g.10gb",
    ]


@pytest.mark.parametrize(
    ("one", "other", "excluded"),
    [
        ("1g.6gb", "1g.6gb", False),
        ("1g.6gb+me", "1g.6gb", False),
        ("1g.6gb+me", "1g.6gb+me", True),
        ("1g.6gb+me", "2g.12gb+me", True),
        ("1g.24gb+me.all", "1g.24gb+me", True),
        ("1g.24gb+me.all", "1g.24gb", True),
        ("1g.24gb+me.all", "2g.48gb+gfx", True),
        ("1g.24gb+me.all", "2g.48gb-me", False),
        ("1g.24gb-me", "1g.24gb-me", False),
        ("1g.24gb+me", "1g.24gb-me", False),
        ("no profile", "1g.24gb+me.all", False),
    ],
)
def test_media_profiles_exclude_each_other_both_ways(one: str, other: str, excluded: bool) -> None:
    assert never_together(one, other) is excluded
    assert never_together(other, one) is excluded
