"""The state tables against NVIDIA's published counts, and against a naive enumeration of every layout."""

from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioning.layouts import EMPTY, Instance, Layout, check_layout
from partitioning.models import GpuModel
from partitioning.packing import Packed, pack
from partitioning.placement_sets import enumerate_placements
from partitioning.states import StateTable, state_table
from tests.builders.models import MODELS

pytestmark = pytest.mark.slow

A100_BASE = ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
H100_BASE = ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb")
A30_BASE = ("1g.6gb", "2g.12gb", "4g.24gb")
SEARCHED = ["A30-24GB", "A100-40GB", "H100-80GB", "RTX-PRO-6000-BLACKWELL-96GB"]
PLANNABLE = [model for model in MODELS.values() if model.mig_capable and model.confirmed]


@lru_cache
def every_layout(key: str, profiles: tuple[str, ...]) -> list[Layout]:
    """By growing layouts one instance at a time and asking only `check_layout`: nothing of the tables is used."""
    model = MODELS[key]
    places = [
        Instance(start=start, size=spec.size, profile=spec.name)
        for spec in model.profiles
        if spec.name in profiles
        for start in spec.starts
    ]
    found = {Layout()}
    fringe = [Layout()]
    while fringe:
        grown = {
            layout.union([place])
            for layout in fringe
            for place in places
            if not layout.mask & place.mask and check_layout(model, layout.union([place])) is None
        }
        fringe = sorted(grown - found, key=lambda layout: layout.instances)
        found |= grown
    return sorted(found, key=lambda layout: layout.instances)


def all_profiles(key: str) -> tuple[str, ...]:
    return tuple(spec.name for spec in MODELS[key].profiles)


def vector(table: StateTable, layout: Layout) -> tuple[int, ...]:
    return tuple(layout.counts().get(name, 0) for name in table.profiles)


@pytest.mark.parametrize(
    ("key", "profiles", "states", "maximal", "multisets", "pareto"),
    [
        ("A30-24GB", A30_BASE, 26, 5, 10, 4),
        ("A30-24GB", all_profiles("A30-24GB"), 76, 17, 20, 8),
        ("A100-40GB", A100_BASE, 298, 19, 38, 12),
        ("H100-80GB", H100_BASE, 298, 19, 38, 12),
        ("A100-40GB", (*A100_BASE, "1g.10gb"), 723, 78, 78, 28),
        ("A100-40GB", all_profiles("A100-40GB"), 2319, 239, 128, 44),
    ],
)
def test_counts_agree_with_the_published_ones(
    *, key: str, profiles: tuple[str, ...], states: int, maximal: int, multisets: int, pareto: int
) -> None:
    layouts = every_layout(key, profiles)
    held = [frozenset(layout) for layout in layouts]
    table = state_table(MODELS[key], frozenset(profiles))
    assert len(layouts) == states
    assert sum(not any(one < other for other in held) for one in held) == maximal
    assert len(table.vectors(0)) == multisets
    assert len(table.pareto(0)) == pareto


@pytest.mark.parametrize("key", ["A30-24GB", "RTX-PRO-6000-BLACKWELL-96GB"])
def test_vectors_are_those_of_the_naive_enumeration(key: str) -> None:
    table = state_table(MODELS[key])
    assert sorted({vector(table, layout) for layout in every_layout(key, all_profiles(key))}) == sorted(
        table.vectors(0)
    )


@pytest.mark.parametrize("key", ["A30-24GB", pytest.param("A100-40GB", marks=pytest.mark.thorough)])
def test_vectors_alongside_every_pinned_layout_are_those_of_the_naive_enumeration(key: str) -> None:
    table = state_table(MODELS[key])
    layouts = every_layout(key, all_profiles(key))
    masks = {table.mask_of(layout): layout for layout in layouts}
    media = {spec.name for spec in MODELS[key].profiles if spec.name.endswith("+me")}
    for mask, pinned in sorted(masks.items()):
        has_media = any(instance.profile in media for instance in pinned)
        alongside = {
            vector(table, layout)
            for layout in layouts
            if not layout.mask & pinned.mask and not (has_media and media & layout.counts().keys())
        }
        assert set(table.vectors(mask)) == alongside


@pytest.mark.parametrize("model", PLANNABLE, ids=lambda model: model.key)
def test_pareto_holds_exactly_the_undominated_vectors(model: GpuModel) -> None:
    table = state_table(model)
    for mask in {0, *(place.taken for name in table.profiles for place in table.placements(name))}:
        vectors = table.vectors(mask)
        undominated = [
            one
            for one in vectors
            if not any(
                other != one and all(more >= less for more, less in zip(other, one, strict=True)) for other in vectors
            )
        ]
        assert list(table.pareto(mask)) == undominated


def realized(table: StateTable, kept: Layout, counts: tuple[int, ...]) -> Layout | None:
    """`kept` with these counts in addition."""
    found = pack(table.model, pinned=kept, requested=dict(zip(table.profiles, counts, strict=True)))
    return found.layout if isinstance(found, Packed) else None


@pytest.mark.parametrize("key", SEARCHED)
def test_every_vector_has_a_layout_and_no_other_has(key: str) -> None:
    model = MODELS[key]
    table = state_table(model)
    for counts in table.vectors(0):
        layout = realized(table, EMPTY, counts)
        assert layout is not None
        assert check_layout(model, layout) is None
        assert vector(table, layout) == counts
    too_many = tuple(len(table.placements(name)) + 1 for name in table.profiles)
    assert realized(table, EMPTY, too_many) is None


@pytest.mark.parametrize("key", ["A30-24GB", "A100-40GB"])
def test_arrangements_come_once_each_and_are_all_layouts(key: str) -> None:
    table = state_table(MODELS[key])
    found = [
        Layout.of(place.instance for place in places)
        for counts in table.vectors(0)
        for places in enumerate_placements(
            0, [(table.placements(name), count) for name, count in zip(table.profiles, counts, strict=True)]
        )
    ]
    assert sorted(found, key=lambda layout: layout.instances) == every_layout(key, all_profiles(key))


@pytest.mark.parametrize(
    ("profile", "start"), [("1g.5gb", 6), ("1g.10gb", 6), ("2g.10gb", 4), ("3g.20gb", 4), ("4g.20gb", 0)]
)
def test_the_cheapest_place_on_an_empty_a100_is_the_one_that_the_driver_takes(profile: str, start: int) -> None:
    choice = state_table(MODELS["A100-40GB"]).cheapest(0, profile)
    assert choice is not None
    assert choice.placement.instance.start == start


def test_the_last_memory_slice_counts_by_which_profile_can_use_it() -> None:
    table = state_table(MODELS["A100-40GB"], frozenset({"1g.5gb", "3g.20gb"}))
    demanded = frozenset({"1g.5gb", "3g.20gb"})
    right = table.cheapest(0, "3g.20gb", demanded)
    assert right is not None
    assert (right.placement.instance.start, right.loss) == (4, 3)
    assert table.potential(0, demanded) == 7
    assert table.potential(0b1111, demanded) == 3
    assert table.potential(0b11110000, demanded) == 4
    assert table.potential(0b1, frozenset({"3g.20gb"})) == 3
    assert table.potential(0b10001, frozenset({"3g.20gb"})) == 0
    assert table.cheapest(0b10001, "3g.20gb") is None


def test_a_subset_leaves_out_what_the_model_lacks_and_still_counts_pinned_strangers() -> None:
    model = MODELS["A100-40GB"]
    table = state_table(model, frozenset({"1g.5gb+me", "1g.10gb", "9g.90gb"}))
    assert table.profiles == ("1g.5gb+me", "1g.10gb")
    pinned = Layout.of([Instance(start=0, size=4, profile="3g.20gb"), Instance(start=4, size=1, profile="1g.5gb+me")])
    mask = table.mask_of(pinned)
    assert table.fitting(mask, "1g.5gb+me") == ()
    assert [place.instance.start for place in table.fitting(mask, "1g.10gb")] == [6]
    assert table.placements("2g.10gb") == ()
    assert state_table(model, frozenset({"1g.10gb"})) is state_table(model, frozenset({"1g.10gb"}))


def test_a_table_without_profiles_answers_with_nothing() -> None:
    table = state_table(MODELS["A100-40GB"], frozenset({"9g.90gb"}))
    assert (table.vectors(0), table.pareto(0), table.potential(0)) == (((),), ((),), 0)
    assert state_table(MODELS["T4"]).vectors(0) == ((),)


def test_all_media_fits_alongside_instances_without_media_only() -> None:
    table = state_table(MODELS["RTX-PRO-6000-BLACKWELL-96GB"])
    mask = table.mask_of([Instance(start=0, size=3, profile="1g.24gb+me.all")])
    assert [name for name in table.profiles if table.fitting(mask, name)] == ["1g.24gb-me", "2g.48gb-me"]
    with_plain = table.mask_of([Instance(start=0, size=3, profile="1g.24gb")])
    assert table.fitting(with_plain, "1g.24gb+me.all") == ()
    assert len(table.fitting(with_plain, "1g.24gb")) == 3


@given(st.data())
def test_realized_layouts_fit_alongside_what_is_pinned(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(SEARCHED))
    table = state_table(MODELS[key])
    pinned = realized(table, EMPTY, data.draw(st.sampled_from(table.vectors(0))))
    assert pinned is not None
    kept = Layout.of(data.draw(st.lists(st.sampled_from(pinned.instances), unique=True)) if len(pinned) else [])
    mask = table.mask_of(kept)
    both = realized(table, kept, data.draw(st.sampled_from(table.pareto(mask))))
    assert both is not None
    assert check_layout(MODELS[key], both) is None
