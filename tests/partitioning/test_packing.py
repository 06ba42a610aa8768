"""Packing against brute force: it finds a layout exactly where one exists, and none destroys or creates less."""

from collections.abc import Iterator
from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioning.layouts import EMPTY, Instance, Layout, check_layout, instance_at
from partitioning.models import GpuModel
from partitioning.packing import DoesNotFit, Packed, pack
from partitioning.placement_sets import enumerate_placements
from partitioning.placements import placements_of
from partitioning.states import state_table
from tests.builders.models import A30, A100, MODELS

pytestmark = pytest.mark.slow


def on(model: GpuModel, *places: tuple[str, int]) -> Layout:
    instances = [instance_at(model, profile, start) for profile, start in places]
    assert None not in instances
    return Layout.of(instance for instance in instances if instance is not None)


@lru_cache
def layouts_by_counts(key: str) -> dict[tuple[tuple[str, int], ...], list[Layout]]:
    """Every possible layout of a model, by geometry, found slot by slot without any table."""
    model = MODELS[key]
    places = [
        Instance(start=start, size=spec.size, profile=spec.name) for spec in model.profiles for start in spec.starts
    ]

    def grown(layout: tuple[Instance, ...], free_from: int) -> Iterator[Layout]:
        yield Layout.of(layout)
        for place in places:
            if place.start >= free_from and not any(model.excludes(place.profile, other.profile) for other in layout):
                yield from grown((*layout, place), place.start + place.size)

    found: dict[tuple[tuple[str, int], ...], list[Layout]] = {}
    for layout in grown((), 0):
        found.setdefault(tuple(layout.counts().items()), []).append(layout)
    return found


def some_layout(data: st.DataObject, key: str) -> Layout:
    geometry = data.draw(st.sampled_from(sorted(layouts_by_counts(key))))
    return data.draw(st.sampled_from(layouts_by_counts(key)[geometry]))


@pytest.mark.parametrize("key", ["A30-24GB", pytest.param("A100-40GB", marks=pytest.mark.thorough)])
def test_pack_finds_a_layout_exactly_where_brute_force_finds_one(key: str) -> None:
    """Every geometry, with one layout for every set of memory slices and media engines that can be taken."""
    model, by_counts = MODELS[key], layouts_by_counts(key)
    pinned_by_mask: dict[int, Layout] = {}
    for same_counts in by_counts.values():
        for layout in same_counts:
            pinned_by_mask.setdefault(state_table(model).mask_of(layout), layout)
    for pinned in pinned_by_mask.values():
        media_taken = any(instance.profile.endswith("+me") for instance in pinned)
        for wanted, candidates in by_counts.items():
            barred = media_taken and any(profile.endswith("+me") for profile, _ in wanted)
            possible = not barred and any(not layout.mask & pinned.mask for layout in candidates)
            packed = pack(model, pinned=pinned, requested=dict(wanted))
            assert isinstance(packed, Packed) is possible, f"{wanted} with {pinned}"


@given(st.data())
def test_no_arrangement_destroys_fewer_idle_instances_or_creates_fewer(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(["A30-24GB", "A100-40GB", "RTX-PRO-6000-BLACKWELL-96GB"]))
    model, observed = MODELS[key], some_layout(data, key)
    used = data.draw(st.lists(st.sampled_from(observed.instances), unique=True)) if len(observed) else []
    pinned = Layout.of(used)
    idle = observed.without(pinned)
    wanted = dict(data.draw(st.sampled_from(sorted(layouts_by_counts(key)))))
    packed = pack(model, pinned=pinned, requested=wanted, prefer=idle)
    costs = [
        cost(model, pinned, candidate, idle)
        for candidate in layouts_by_counts(key)[tuple(sorted(wanted.items()))]
        if check_layout(model, pinned.union(candidate)) is None and not pinned.mask & candidate.mask
    ]
    if isinstance(packed, DoesNotFit):
        assert not costs
        return
    assert check_layout(model, packed.with_spare) is None
    assert packed.layout.without(pinned).counts() == wanted
    assert set(pinned) <= set(packed.layout)
    assert set(packed.spare) <= set(idle)
    assert not set(packed.spare) & set(packed.layout)
    assert cost(model, pinned, packed.layout.without(pinned), idle) == min(costs)


def cost(model: GpuModel, pinned: Layout, placed: Layout, idle: Layout) -> tuple[int, int]:
    """Idle instances that must go, and instances that must be created."""
    destroyed = sum(
        instance not in placed and check_layout(model, placed.union([instance])) is not None for instance in idle
    )
    return destroyed, sum(instance not in idle for instance in placed)


@given(st.data())
def test_what_is_missing_is_the_rest_of_what_can_be_served(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(["A30-24GB", "A100-40GB"]))
    model, pinned = MODELS[key], some_layout(data, key)
    names = [spec.name for spec in model.profiles]
    wanted = data.draw(st.dictionaries(st.sampled_from(names), st.integers(0, 9), max_size=3))
    packed = pack(model, pinned=pinned, requested=wanted)
    if isinstance(packed, Packed):
        return
    missing = dict(packed.missing)
    assert missing
    assert all(0 < count <= wanted[name] for name, count in missing.items())
    served = {name: count - missing.get(name, 0) for name, count in wanted.items()}
    assert isinstance(pack(model, pinned=pinned, requested=served), Packed)
    assert packed.reason.startswith(", ".join(f"{count} x {name}" for name, count in sorted(wanted.items()) if count))


@pytest.mark.parametrize(
    ("pinned", "wanted", "prefer", "layout", "spare"),
    [
        pytest.param([], {}, [], [], [], id="nothing"),
        pytest.param([], {"4g.20gb": 1, "3g.20gb": 1}, [], [("4g.20gb", 0), ("3g.20gb", 4)], [], id="4g-and-3g"),
        pytest.param(
            [],
            {"3g.20gb": 1, "1g.5gb": 4},
            [],
            [("1g.5gb", 0), ("1g.5gb", 1), ("1g.5gb", 2), ("1g.5gb", 3), ("3g.20gb", 4)],
            [],
            id="3g-goes-to-4-so-that-four-1g-fit",
        ),
        pytest.param([("1g.5gb", 2)], {"3g.20gb": 1}, [], [("1g.5gb", 2), ("3g.20gb", 4)], [], id="next-to-pinned"),
        pytest.param([], {"1g.5gb": 1}, [("1g.5gb", 2)], [("1g.5gb", 2)], [], id="reuses-idle"),
        pytest.param(
            [], {"1g.5gb": 1}, [("3g.20gb", 4)], [("1g.5gb", 0)], [("3g.20gb", 4)], id="leaves-idle-untouched"
        ),
        pytest.param(
            [], {"4g.20gb": 1}, [("1g.5gb", 1), ("1g.5gb", 5)], [("4g.20gb", 0)], [("1g.5gb", 5)], id="cuts-only-needed"
        ),
        pytest.param(
            [],
            {"3g.20gb": 1},
            [("1g.5gb", 0), ("1g.5gb", 1), ("1g.5gb", 4)],
            [("3g.20gb", 4)],
            [("1g.5gb", 0), ("1g.5gb", 1)],
            id="cuts-the-fewest",
        ),
        pytest.param([], {"1g.5gb": 1}, [], [("1g.5gb", 6)], [], id="leaves-the-largest-hole"),
        pytest.param(
            [("1g.5gb+me", 3)], {"1g.5gb": 1}, [("1g.5gb+me", 5)], [("1g.5gb", 2), ("1g.5gb+me", 3)], [], id="one-media"
        ),
    ],
)
def test_a_case_has_one_best_layout(
    pinned: list[tuple[str, int]],
    wanted: dict[str, int],
    prefer: list[tuple[str, int]],
    layout: list[tuple[str, int]],
    spare: list[tuple[str, int]],
) -> None:
    packed = pack(A100, pinned=on(A100, *pinned), requested=wanted, prefer=on(A100, *prefer))
    assert packed == Packed(layout=on(A100, *layout), spare=on(A100, *spare))


@pytest.mark.parametrize(
    ("key", "pinned", "wanted", "words", "missing"),
    [
        (
            "A100-40GB",
            [("1g.5gb", 2)],
            {"4g.20gb": 1},
            ["1 x 4g.20gb", "A100-40GB", "1g.5gb at 2"],
            (("4g.20gb", 1),),
        ),
        (
            "A100-40GB",
            [],
            {"3g.20gb": 3, "1g.5gb": 1},
            ["1 x 1g.5gb, 3 x 3g.20gb", "empty"],
            (("1g.5gb", 1), ("3g.20gb", 1)),
        ),
        ("A100-40GB", [], {"1g.5gb+me": 2}, ["1 x 1g.5gb+me too many"], (("1g.5gb+me", 1),)),
        ("A100-40GB", [], {"1g.10gb+me": 1}, ["has no profile 1g.10gb+me", "1g.5gb+me"], (("1g.10gb+me", 1),)),
        ("T4", [], {"1g.5gb": 1}, ["T4 has no MIG", "MPS"], (("1g.5gb", 1),)),
        ("RTX-PRO-5000-BLACKWELL-48GB", [], {"1g.24gb": 1}, ["not published"], (("1g.24gb", 1),)),
    ],
)
def test_no_room_names_what_does_not_fit_and_what_is_there(
    key: str,
    pinned: list[tuple[str, int]],
    wanted: dict[str, int],
    words: list[str],
    missing: tuple[tuple[str, int], ...],
) -> None:
    answer = pack(MODELS[key], pinned=on(MODELS[key], *pinned), requested=wanted)
    assert isinstance(answer, DoesNotFit)
    assert answer.missing == missing
    for word in words:
        assert word in answer.reason


def test_pinned_instances_that_overlap_are_no_base_for_packing() -> None:
    overlapping = on(A100, ("4g.20gb", 0), ("1g.5gb", 1))
    answer = pack(A100, pinned=overlapping, requested={"1g.5gb": 1})
    assert isinstance(answer, DoesNotFit)
    assert "overlap" in answer.reason


def test_names_of_other_drivers_are_understood_and_observed_ones_come_back_as_they_were() -> None:
    model = MODELS["A100-80GB"]
    seen = Layout.of([Instance(start=0, size=8, profile="7g.79gb")])
    assert pack(model, pinned=EMPTY, requested={"7g.80gb": 1}, prefer=seen) == Packed(layout=seen, spare=EMPTY)
    assert pack(model, pinned=EMPTY, requested={"7g.79gb": 1}) == Packed(layout=on(model, ("7g.80gb", 0)), spare=EMPTY)


def test_an_instance_that_the_model_does_not_list_still_takes_its_place() -> None:
    stranger = Layout.of([Instance(start=0, size=4, profile="5g.30gb")])
    packed = pack(A100, pinned=stranger, requested={"3g.20gb": 1})
    assert packed == Packed(layout=stranger.union(on(A100, ("3g.20gb", 4))), spare=EMPTY)
    assert isinstance(pack(A100, pinned=stranger, requested={"4g.20gb": 1}), DoesNotFit)


def test_what_has_fewer_places_than_instances_has_no_arrangement() -> None:
    places = placements_of(A30)["2g.12gb"]

    assert list(enumerate_placements(0, [((), 1)])) == []
    assert list(enumerate_placements(0, [(places, len(places) + 1)])) == []
    assert list(enumerate_placements(0, [((), 0)])) == [()]
