"""A driver that makes fewer instances of a profile than there is room for, as 580 does on an RTX PRO 5000."""

from collections import Counter
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioning.layouts import EMPTY, Instance, Layout, check_layout
from partitioning.models import GpuModel, known_models
from partitioning.packing import DoesNotFit, Packed, pack
from partitioning.placements import limits_of, occupancy
from partitioning.states import state_table
from tests.builders.models import A30, A100


def limited(model: GpuModel, **most: int) -> GpuModel:
    """Profiles by their compute slices: `_1=2` is at most two of 1g."""
    counts = {f"{name.removeprefix('_')}g": count for name, count in most.items()}
    specs = [
        replace(s, max_instances=counts.get(s.name.split(".")[0], s.max_instances)) if "+" not in s.name else s
        for s in model.profiles
    ]
    return replace(model, profiles=tuple(specs))


ONE = limited(A30, _1=1)


def test_no_known_model_has_such_a_limit() -> None:
    assert {model.key: dict(limits_of(model)) for model in known_models() if limits_of(model)} == {}


def test_the_second_instance_does_not_fit_and_the_reason_is_the_driver() -> None:
    assert isinstance(pack(ONE, pinned=EMPTY, requested={"1g.6gb": 1, "2g.12gb": 1}), Packed)
    refused = pack(ONE, pinned=EMPTY, requested={"1g.6gb": 2})
    assert isinstance(refused, DoesNotFit)
    assert refused.missing == (("1g.6gb", 1),)
    assert "its driver makes at most 1 x 1g.6gb" in refused.reason


def test_what_is_there_counts() -> None:
    there = Layout.of([Instance(start=3, size=1, profile="1g.6gb")])
    table = state_table(ONE)
    assert table.fitting(occupancy(ONE, there), "1g.6gb") == ()
    assert [place.instance.start for place in table.fitting(occupancy(ONE, there), "2g.12gb")] == [0]
    assert isinstance(pack(ONE, pinned=there, requested={"1g.6gb": 1}), DoesNotFit)
    assert isinstance(pack(ONE, pinned=EMPTY, requested={"1g.6gb": 1}, prefer=there), Packed)


def test_more_than_the_limit_that_is_there_stops_no_other_profile() -> None:
    """Another driver, or another program, has made them."""
    there = Layout.of(Instance(start=start, size=1, profile="1g.6gb") for start in (0, 1))
    assert isinstance(pack(ONE, pinned=there, requested={"2g.12gb": 1}), Packed)
    assert isinstance(pack(ONE, pinned=there, requested={"1g.6gb": 1}), DoesNotFit)


def test_a_layout_by_hand_beyond_the_limit_is_named() -> None:
    layout = Layout.of(Instance(start=start, size=1, profile="1g.6gb") for start in (0, 1))
    assert check_layout(ONE, layout) == "2 x 1g.6gb: the driver of this A30-24GB makes at most 1"
    assert check_layout(A30, layout) is None


@pytest.mark.parametrize("base", [A30, A100], ids=lambda model: model.key)
@given(data=st.data())
def test_packing_finds_room_where_a_naive_search_does(base: GpuModel, data: st.DataObject) -> None:
    model = limited(base, _1=data.draw(st.integers(1, 3)), _2=data.draw(st.integers(1, 2)))
    plain = [spec for spec in model.profiles if "+" not in spec.name and spec.compute_slices < 4]
    wanted = {spec.name: data.draw(st.integers(0, 2)) for spec in plain}
    found = pack(model, pinned=EMPTY, requested=wanted)
    assert isinstance(found, Packed) == any_layout(model, wanted)
    if isinstance(found, Packed):
        assert check_layout(model, found.layout) is None
        assert +Counter(found.layout.counts()) == +Counter(wanted)


def any_layout(model: GpuModel, wanted: dict[str, int]) -> bool:
    specs = {spec.name: spec for spec in model.profiles}
    if any(count > specs[name].max_instances for name, count in wanted.items()):
        return False
    names = [name for name, count in wanted.items() for _ in range(count)]
    for starts in product(*(specs[name].starts for name in names)):
        masks = [((1 << specs[name].size) - 1) << start for name, start in zip(names, starts, strict=True)]
        if sum(masks).bit_count() == sum(mask.bit_count() for mask in masks) and _apart(masks):
            return True
    return False


def _apart(masks: list[int]) -> bool:
    taken = 0
    for mask in masks:
        if taken & mask:
            return False
        taken |= mask
    return True
