"""Nodes with unlike CPU or memory: heavy pods go where it is, light ones where it is not."""

from collections import Counter

import pytest

from benchmarks.families import FAMILIES, case
from controller.planning import plan
from tests.controller.planner.builders import cluster, mig, pod, server
from tests.controller.planner.checker import check
from tests.drawn import thorough


@pytest.mark.parametrize(("heavy", "small", "large"), [(3, 8, 21), (3, 10, 22), (4, 9, 28), (5, 10, 37)])
def test_light_pods_leave_a_large_node_to_heavy_ones(heavy: int, small: int, large: int) -> None:
    """All fourteen fit: seven of 1 GiB on the small node, seven heavy ones on the large node."""
    pending = [pod(f"heavy-{number}", "1g.5gb", memory_gib=heavy, created=number) for number in range(7)]
    pending += [pod(f"light-{number}", "1g.5gb", memory_gib=1, created=7 + number) for number in range(7)]
    snapshot = cluster(
        server("node-1", mig(), memory_gib=small), server("node-2", mig(), memory_gib=large), pending=pending
    )
    result = plan(snapshot)

    check(snapshot, result)
    assert len(result.placed) == 14


def test_a_light_pod_that_selects_the_large_node_stays_there() -> None:
    """Some heavy pods are on the small node, which has no memory left for the light ones: these may not go there."""
    pending = [pod(f"heavy-{number}", "1g.5gb", memory_gib=3, created=number) for number in range(7)]
    pending += [
        pod(f"light-{number}", "1g.5gb", memory_gib=1, created=7 + number, selector={"pool": "large"})
        for number in range(7)
    ]
    snapshot = cluster(
        server("node-1", mig(), memory_gib=9),
        server("node-2", mig(), memory_gib=21, labels={"pool": "large"}),
        pending=pending,
    )
    result = plan(snapshot)

    check(snapshot, result)
    assert {one.node for one in result.placed if one.key[1].startswith("light")} == {"node-2"}


@pytest.mark.parametrize(("name", "seed"), [("cpu uneven", 1), ("memory uneven", 501), *thorough(("all", 1))])
def test_no_node_gets_more_than_it_has(name: str, seed: int) -> None:
    """However many pods change places."""
    snapshot = case(FAMILIES[name], nodes=10, gpus=8, seed=seed, more=0.6).snapshot
    pending = {one.uid: dict(one.requests) for one in snapshot.pending}
    free = {node.name: Counter(node.allocatable) for node in snapshot.nodes}
    for bound in snapshot.pods:
        free[bound.node].subtract(dict(bound.requests))
    for placed in plan(snapshot).placed:
        free[placed.node].subtract(pending[placed.uid])

    assert min(left["cpu"] for left in free.values()) >= 0
    assert min(left["memory"] for left in free.values()) >= 0
