"""Pods with several partitions: idle ones may lie in the way, and hundreds that no node has cost no search."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.planner.board.devices import Pool, Reach
from controller.planner.board.pools import MigPool, MpsPool, StockPool
from controller.planning import plan
from partitioning.resources import mig_resource, mps_resource_gb
from tests.builders.models import H100
from tests.controller.planner.builders import cluster, mig, mps, pod, server
from tests.controller.planner.checker import check

PROFILES = {mig_resource(spec.name): spec.name for spec in H100.profiles}
SIZES = {mps_resource_gb(size): size * 954 for size in (1, 3, 10, 40)}


def pools() -> dict[str, tuple[Pool, int]]:
    """With the state of a device that is empty."""
    return {
        "stock": (StockPool("nvidia.com/mig-1g.10gb", Reach.EXISTING), 5),
        "mig": (MigPool(H100, PROFILES), 0),
        "mps": (MpsPool(SIZES, whole=True), MpsPool.state_of(80_000, 0)),
    }


@pytest.mark.parametrize("kind", pools())
@given(st.randoms(use_true_random=False))
def test_no_more_can_be_taken_than_the_pool_says(kind: str, rng: random.Random) -> None:
    pool, state = pools()[kind]
    for _ in range(rng.randint(0, 4)):
        fitting = pool.fit(state, rng.choice(sorted(pool.serves)))
        state = state if fitting is None else fitting.after
    for resource in sorted(pool.serves):
        most, taken, now = pool.most(state, resource), 0, state
        while (fitting := pool.fit(now, resource)) is not None:
            taken, now = taken + 1, fitting.after
        assert taken <= most
        assert bool(taken) is bool(most)


def test_an_idle_instance_in_the_way_is_destroyed() -> None:
    """Alongside the 3g where it is both 2g have no place."""
    wanted = pod("a", ("2g.10gb", 2), "3g.20gb")
    before = cluster(server("n1", mig(idle=[("3g.20gb", 0)])), pending=[wanted])
    result = plan(before)
    check(before, result)
    assert [one.key[1] for one in result.placed] == ["a"]


def test_hundreds_that_no_node_has_cost_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    def counted(self: MpsPool, state: int, resource: str) -> object:
        nonlocal asked
        asked += 1
        return fit(self, state, resource)

    fit = MpsPool.fit
    monkeypatch.setattr(MpsPool, "fit", counted)
    servers = [
        server(f"n{one}", *(mps(index, used_gb=[10]) for index in range(4)), partitioning="mps") for one in range(10)
    ]
    pending = [pod(f"p{count}", ("1gb", count)) for count in range(150, 190)]
    result = plan(cluster(*servers, pending=pending))
    assert not result.placed
    assert asked < 2_000
