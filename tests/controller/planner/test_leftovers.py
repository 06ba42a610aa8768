"""What a pass knows of nodes together: that none of them has all that a pod needs."""

from hypothesis import given
from hypothesis import strategies as st

from controller.model.capacity import Capacity
from controller.planner.board.leftovers import Leftovers

AMOUNTS = st.integers(-3, 3)
CAPACITIES = st.builds(
    lambda cpu, memory, pods, other: Capacity.of({"cpu": cpu, "memory": memory, "pods": pods, **other}),
    *(AMOUNTS, AMOUNTS, AMOUNTS),
    st.dictionaries(st.sampled_from(["ephemeral-storage", "example.com/nic"]), AMOUNTS),
)


@given(st.lists(CAPACITIES, min_size=1, max_size=6), st.lists(CAPACITIES, max_size=6))
def test_some_node_may_hold_just_what_fits_one_of_them(nodes: list[Capacity], needed: list[Capacity]) -> None:
    left = Leftovers(lambda: nodes)
    assert [left.may_hold(needs) for needs in needed] == [any(one.fits(needs) for one in nodes) for needs in needed]


def test_of_no_nodes_none_holds_anything() -> None:
    assert not Leftovers(list).may_hold(Capacity(pods=1))
