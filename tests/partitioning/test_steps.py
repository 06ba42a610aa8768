"""Change steps: they lead to the desired layout, never touch what is in use, and survive being cut off anywhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioning.layouts import EMPTY, Instance, Layout, check_layout, instance_at
from partitioning.placement_sets import enumerate_placements
from partitioning.states import state_table
from partitioning.steps import Change, change
from tests.builders.models import A100, MODELS


def every_layout(key: str) -> list[Layout]:
    table = state_table(MODELS[key])
    return [
        Layout.of(place.instance for place in places)
        for counts in table.vectors(0)
        for places in enumerate_placements(
            0, [(table.placements(name), count) for name, count in zip(table.profiles, counts, strict=True)]
        )
    ]


LAYOUTS = {key: every_layout(key) for key in ("A30-24GB", "A100-40GB")}


@st.composite
def worlds(draw: st.DrawFn) -> tuple[str, Layout, Layout, tuple[Instance, ...]]:
    """A model, its observed and desired layouts, and which observed instances are in use."""
    key = draw(st.sampled_from(sorted(LAYOUTS)))
    observed, desired = draw(st.sampled_from(LAYOUTS[key])), draw(st.sampled_from(LAYOUTS[key]))
    used = draw(st.lists(st.sampled_from(observed.instances), unique=True)) if len(observed) else []
    return key, observed, desired, tuple(used)


def done(observed: Layout, steps: Change, count: int | None = None) -> Layout:
    """The GPU after the first `count` steps (None: all), each checked as a driver would."""
    actions = [("destroy", instance) for instance in steps.destroy] + [
        ("create", instance) for instance in steps.create
    ]
    for action, instance in actions[:count]:
        if action == "destroy":
            assert instance in observed
            observed = observed.without([instance])
        else:
            assert not observed.mask & instance.mask
            observed = observed.union([instance])
    return observed


def on(*places: tuple[str, int]) -> Layout:
    instances = [instance_at(A100, profile, start) for profile, start in places]
    assert None not in instances
    return Layout.of(instance for instance in instances if instance is not None)


@given(worlds())
def test_when_nothing_is_in_use_the_steps_give_the_desired_layout(
    world: tuple[str, Layout, Layout, tuple[Instance, ...]],
) -> None:
    _, observed, desired, _ = world
    steps = change(observed, desired, ())
    assert done(observed, steps) == desired
    assert (steps.blocked, steps.waiting) == ((), ())
    assert change(desired, desired, ()).converged


@given(worlds())
def test_what_is_in_use_stays_and_every_state_on_the_way_is_possible(
    world: tuple[str, Layout, Layout, tuple[Instance, ...]],
) -> None:
    key, observed, desired, used = world
    steps = change(observed, desired, used)
    for count in range(len(steps.destroy) + len(steps.create) + 1):
        there = done(observed, steps, count)
        assert check_layout(MODELS[key], there) is None
        assert set(used) <= set(there)
        assert set(steps.keep) <= set(there)


@given(worlds())
def test_every_instance_has_exactly_one_fate(world: tuple[str, Layout, Layout, tuple[Instance, ...]]) -> None:
    _, observed, desired, used = world
    steps = change(observed, desired, used)
    assert sorted((*steps.destroy, *steps.keep, *steps.blocked)) == sorted(observed)
    assert sorted((*steps.create, *steps.keep, *steps.waiting)) == sorted(desired)
    assert set(steps.blocked) == set(used) - set(desired)


@given(worlds(), st.data())
def test_a_change_cut_off_anywhere_converges_to_the_same_layout(
    world: tuple[str, Layout, Layout, tuple[Instance, ...]], data: st.DataObject
) -> None:
    _, observed, desired, used = world
    whole = change(observed, desired, used)
    cut = data.draw(st.integers(0, len(whole.destroy) + len(whole.create)))
    there = done(observed, whole, cut)
    rest = change(there, desired, used)
    assert done(there, rest) == done(observed, whole)
    finished = change(done(there, rest), desired, used)
    assert not finished.destroy
    assert not finished.create
    assert finished.waiting == whole.waiting


@given(worlds())
def test_after_the_release_the_rest_is_done(world: tuple[str, Layout, Layout, tuple[Instance, ...]]) -> None:
    _, observed, desired, used = world
    there = done(observed, change(observed, desired, used))
    assert done(there, change(there, desired, ())) == desired


@pytest.mark.parametrize(
    ("observed", "desired", "used", "destroy", "create", "keep", "blocked", "waiting"),
    [
        pytest.param(on(), on(), on(), on(), on(), on(), on(), on(), id="nothing"),
        pytest.param(
            on(("1g.5gb", 0), ("2g.10gb", 2)),
            on(("1g.5gb", 0), ("3g.20gb", 4)),
            on(("1g.5gb", 0)),
            on(("2g.10gb", 2)),
            on(("3g.20gb", 4)),
            on(("1g.5gb", 0)),
            on(),
            on(),
            id="free",
        ),
        pytest.param(
            on(("1g.5gb", 0), ("1g.5gb", 1)),
            on(("4g.20gb", 0), ("2g.10gb", 4)),
            on(("1g.5gb", 1)),
            on(("1g.5gb", 0)),
            on(("2g.10gb", 4)),
            on(),
            on(("1g.5gb", 1)),
            on(("4g.20gb", 0)),
            id="overlap-waits",
        ),
        pytest.param(
            on(("1g.5gb+me", 0)),
            on(("1g.5gb+me", 3), ("1g.5gb", 1)),
            on(("1g.5gb+me", 0)),
            on(),
            on(("1g.5gb", 1)),
            on(),
            on(("1g.5gb+me", 0)),
            on(("1g.5gb+me", 3)),
            id="media-waits",
        ),
        pytest.param(
            on(),
            on(("1g.5gb", 2)),
            on(("2g.10gb", 2)),
            on(),
            on(),
            on(),
            on(("2g.10gb", 2)),
            on(("1g.5gb", 2)),
            id="in-use-though-not-observed",
        ),
    ],
)
def test_a_case_has_one_change(
    *,
    observed: Layout,
    desired: Layout,
    used: Layout,
    destroy: Layout,
    create: Layout,
    keep: Layout,
    blocked: Layout,
    waiting: Layout,
) -> None:
    assert change(observed, desired, used) == Change(
        destroy=destroy.instances,
        create=create.instances,
        keep=keep.instances,
        blocked=blocked.instances,
        waiting=waiting.instances,
    )


def test_waiting_for_a_release_is_not_converged() -> None:
    used = on(("1g.5gb", 2))
    assert not change(used, EMPTY, used).converged
    assert change(used, used, used).converged
