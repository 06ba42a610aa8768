"""Whatever the cluster: plans that drain are valid, within their limits, and cost no pod its place."""

import random
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from controller.model.snapshot import Snapshot
from controller.planning import plan
from tests.controller.planner.builders import mig, pod, server
from tests.controller.planner.checker import check
from tests.controller.planner.drain_scenes import held, scene
from tests.controller.planner.world import applied
from tests.drawn import examples


def drawn(seed: int, share: float = 1.0) -> Snapshot:
    """Six GPUs of which most are held by pods that came later, and pods of every size and priority that wait."""
    rng = random.Random(seed)
    gpus = [
        held(rng.randint(0, 7), index, by=f"team/holder-{node}-{index}")
        if rng.random() < 0.7
        else mig(index, used=[("3g.20gb", 0)], idle=[("3g.20gb", 4)], holder=f"team/holder-{node}-{index}")
        for node in range(3)
        for index in range(2)
    ]
    nodes = [server(f"node-{node}", *gpus[2 * node : 2 * node + 2]) for node in range(3)]
    pending = [
        pod(f"pod-{number}", rng.choice(["7g.40gb", "4g.20gb", "3g.20gb", "1g.5gb"]), created=number, priority=priority)
        for number, priority in enumerate(rng.choice([0, 0, 0, 5]) for _ in range(rng.randint(1, 9)))
    ]
    pending = [replace(one, namespace=rng.choice(["team", "team", "other"])) for one in pending]
    long = frozenset(one.uid for one in pending if rng.random() < share)
    return replace(scene(*nodes, pending=pending), drained_for=long)


def test_most_of_these_clusters_drain() -> None:
    assert sum(bool(plan(drawn(seed)).drained) for seed in range(20)) > 10


@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 10_000), share=st.sampled_from([0.05, 0.5, 1.0]))
def test_any_cluster(seed: int, share: float) -> None:
    """Valid plans, within the limits; without news the next pass changes nothing; no higher priority loses a place."""
    snapshot = drawn(seed, share)
    long = snapshot.drained_for
    result = plan(snapshot)
    check(snapshot, result)

    assert len(result.drained) <= 2
    assert {one.uid for one in result.drained} <= long
    assert result.placed == plan(replace(snapshot, drained_for=frozenset())).placed, "a new drain costs no place"
    second = plan(replace(applied(snapshot, result), drained_for=long))
    assert [change for change in second.node_changes if change.changed] == []
    assert second.drained == result.drained
    for one in result.drained:
        assert not set(one.partitions) & {
            part for other in result.drained if other is not one for part in other.partitions
        }


@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 10_000))
def test_when_more_have_waited_long_it_settles(seed: int) -> None:
    """A drain that ends for a higher priority leaves its place to the next pass; one for another namespace goes on."""
    snapshot = drawn(seed, 0.3)
    snapshot = applied(snapshot, plan(snapshot))
    snapshot = replace(snapshot, drained_for=frozenset(one.uid for one in snapshot.pending))
    changed = []
    for _ in range(4):
        result = plan(snapshot)
        check(snapshot, result)
        changed.append(len(result.node_changes))
        snapshot = applied(snapshot, result)
    assert changed[-1] == 0, changed
