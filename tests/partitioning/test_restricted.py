"""Models whose geometries are restricted: tables and packing against a naive enumeration with the same rule."""

from collections import Counter
from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioning.layouts import EMPTY, Instance, Layout, check_layout
from partitioning.models import Geometry, GpuModel
from partitioning.packing import DoesNotFit, Packed, pack
from partitioning.placements import occupancy
from partitioning.states import state_table
from tests.builders.models import A30, A100


@lru_cache
def every_layout(model: GpuModel) -> tuple[Layout, ...]:
    places = [
        Instance(start=start, size=spec.size, profile=spec.name) for spec in model.profiles for start in spec.starts
    ]
    found = {EMPTY}
    fringe = [EMPTY]
    while fringe:
        grown = {layout.union([place]) for layout in fringe for place in places if not layout.mask & place.mask}
        fringe = [layout for layout in grown - found if check_layout(model, layout) is None]
        found.update(fringe)
    return tuple(sorted(found, key=lambda layout: layout.instances))


def within(layout: Layout, geometries: tuple[Geometry, ...]) -> bool:
    return any(not Counter(layout.counts()) - Counter(dict(most)) for most in geometries)


def geometries_of(model: GpuModel) -> st.SearchStrategy[tuple[Geometry, ...]]:
    possible = sorted({tuple(layout.counts().items()) for layout in every_layout(model)})
    return st.lists(st.sampled_from(possible), max_size=4).map(tuple)


@pytest.mark.parametrize("model", [A30, A100], ids=lambda model: model.key)
def test_tables_know_only_what_is_allowed(model: GpuModel) -> None:
    @given(geometries_of(model), st.sampled_from(every_layout(model)))
    def check(geometries: tuple[Geometry, ...], pinned: Layout) -> None:
        restricted = replace(model, geometries=geometries)
        table = state_table(restricted)
        mask = occupancy(restricted, pinned)
        allowed = {
            tuple(layout.without(pinned).counts().get(name, 0) for name in table.profiles)
            for layout in every_layout(model)
            if set(pinned) <= set(layout) and within(layout, geometries)
        } | {tuple(0 for _ in table.profiles)}
        assert set(table.vectors(mask)) == allowed
        assert set(table.pareto(mask)) == {
            one
            for one in allowed
            if not any(one != other and all(a <= b for a, b in zip(one, other, strict=True)) for other in allowed)
        }
        for name in table.profiles:
            grown = [pinned.union([place.instance]) for place in table.fitting(mask, name)]
            assert all(check_layout(model, layout) is None and within(layout, geometries) for layout in grown)

    check()


LAYOUTS = st.deferred(lambda: st.sampled_from(every_layout(A100)))
GEOMETRIES = st.deferred(lambda: geometries_of(A100))


@given(GEOMETRIES, LAYOUTS, LAYOUTS, st.data())
def test_packing_is_exact_within_what_is_allowed(
    geometries: tuple[Geometry, ...], pinned: Layout, other: Layout, data: st.DataObject
) -> None:
    restricted = replace(A100, geometries=geometries)
    names = [spec.name for spec in A100.profiles]
    wanted = data.draw(st.dictionaries(st.sampled_from(names), st.integers(1, 3), min_size=1, max_size=2))
    prefer = other.without(instance for instance in other if instance.mask & pinned.mask)
    packed = pack(restricted, pinned=pinned, requested=wanted, prefer=prefer)
    possible = any(
        set(pinned) <= set(layout) and layout.without(pinned).counts() == wanted and within(layout, geometries)
        for layout in every_layout(A100)
    )
    assert isinstance(packed, Packed) == possible
    if isinstance(packed, Packed):
        assert check_layout(A100, packed.with_spare) is None
        assert within(packed.with_spare, geometries)
        assert set(pinned) <= set(packed.layout)
    else:
        assert "its geometries are restricted" in packed.reason


def test_no_geometry_at_all_allows_nothing() -> None:
    restricted = replace(A30, geometries=())

    assert isinstance(pack(restricted, pinned=EMPTY, requested={"1g.6gb": 1}), DoesNotFit)
    assert not any(state_table(restricted).pareto(0)[0])


@pytest.mark.parametrize(("requested", "stays"), [({}, True), ({"1g.6gb": 1}, False), ({"2g.12gb": 1}, True)])
def test_what_is_idle_stays_where_nothing_is_made_or_all_of_it_is_allowed(
    requested: dict[str, int], stays: bool
) -> None:
    restricted = replace(A30, geometries=((("1g.6gb", 1),), (("2g.12gb", 2),)))
    idle, more = (Layout.of([Instance(start=start, size=2, profile="2g.12gb")]) for start in (2, 0))

    alone = pack(restricted, pinned=EMPTY, requested=requested, prefer=idle)
    untouched = pack(replace(A30, geometries=()), pinned=EMPTY, requested={}, prefer=idle.union(more))

    assert isinstance(alone, Packed)
    assert (idle.instances[0] in alone.with_spare) == stays
    assert isinstance(untouched, Packed)
    assert untouched.spare == idle.union(more), "another program has made them, and no pod needs their place"
