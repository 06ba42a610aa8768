"""One arithmetic for CPU, memory, pods and other resources: sums, differences, and kube-scheduler's comparison."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.model.capacity import Capacity, needs_of

NAMES = ("cpu", "memory", "pods", "ephemeral-storage", "nvidia.com/mig-1g.5gb", "x.example/y")
LISTS = st.dictionaries(st.sampled_from(NAMES), st.integers(min_value=0, max_value=9))


def amounts(capacity: Capacity) -> dict[str, int]:
    return {name: capacity[name] for name in NAMES if capacity[name]}


@given(one=LISTS, other=LISTS)
def test_sums_and_differences_are_those_of_each_resource(one: dict[str, int], other: dict[str, int]) -> None:
    left, right = Capacity.of(one), Capacity.of(other)

    assert amounts(left + right) == {n: s for n in NAMES if (s := one.get(n, 0) + other.get(n, 0))}
    assert amounts(left - right) == {n: s for n in NAMES if (s := one.get(n, 0) - other.get(n, 0))}
    assert left + right - right == left
    assert Capacity.total([left, right, left]) == left + right + left
    assert Capacity.total([]) == Capacity()


@given(free=LISTS, held=LISTS, needed=LISTS)
def test_fits_where_nothing_is_short(free: dict[str, int], held: dict[str, int], needed: dict[str, int]) -> None:
    left = Capacity.of(free) - Capacity.of(held)
    short = [n for n in NAMES if needed.get(n, 0) > 0 and needed[n] > free.get(n, 0) - held.get(n, 0)]

    assert sorted(left.short_of(Capacity.of(needed))) == sorted(short)
    assert left.short_of(Capacity.of(needed)) == Capacity.of(free).short_of(Capacity.of(needed), held=Capacity.of(held))
    assert left.fits(Capacity.of(needed)) == (not short)


def test_shortages_come_in_the_schedulers_order() -> None:
    needed = Capacity.of(dict.fromkeys(reversed(NAMES), 1) | {"a.example/b": 1})

    assert list(Capacity().short_of(needed)) == [
        "pods",
        "cpu",
        "memory",
        "ephemeral-storage",
        "a.example/b",
        "nvidia.com/mig-1g.5gb",
        "x.example/y",
    ]


@pytest.mark.parametrize("resource", ["cpu", "memory", "x.example/y"])
def test_a_pod_that_needs_nothing_of_it_fits_a_node_that_holds_more_than_it_has(resource: str) -> None:
    overcommitted = Capacity.of({"pods": 2}) - Capacity.of({resource: 1})

    assert overcommitted.fits(needs_of(()))
    assert not overcommitted.fits(needs_of(((resource, 1),)))


def test_equal_amounts_are_one_value() -> None:
    assert Capacity.of({"b.example/x": 2, "a.example/y": 1, "cpu": 0}) == Capacity(
        other=(("a.example/y", 1), ("b.example/x", 2))
    )
    assert len({needs_of((("cpu", 5),)), Capacity(cpu_milli=5, pods=1)}) == 1
