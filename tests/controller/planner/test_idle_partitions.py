"""What it may cost in idle partitions to place a pod more."""

from dataclasses import replace

import pytest

from benchmarks.instances import MIXES, instance
from controller.planning import plan
from tests.controller.planner.builders import cluster, mig, pod, server

_LEFT_OUT = 6
_COMPUTE_SLICES = 7


@pytest.mark.parametrize("seed", [61, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (501, 7103))])
def test_idle_partitions_are_not_destroyed_by_the_dozen_for_one_pod(seed: int) -> None:
    snapshot = instance(nodes=100, gpus=8, pods=2_000, seed=seed, mix=MIXES["plain"])
    result = plan(snapshot)
    served = {one.uid for one in result.placed}
    placed = [pod for pod in snapshot.pending if pod.uid in served]
    largest = [pod for pod in placed if dict(pod.gpu).get("nvidia.com/mig-7g.80gb")][:_LEFT_OUT]
    assert len(largest) == _LEFT_OUT
    assert len(placed) < len(snapshot.pending)  # every GPU is needed

    fewer = plan(replace(snapshot, pending=tuple(pod for pod in placed if pod not in largest)))

    spared = result.counts.partitions_destroyed - fewer.counts.partitions_destroyed
    assert spared <= 2 * _COMPUTE_SLICES * _LEFT_OUT


@pytest.mark.parametrize("priority", [0, 10])
def test_a_pod_of_many_gpus_may_cost_what_is_idle_on_all_of_them(priority: int) -> None:
    gpus = [mig(index, idle=[("1g.5gb", start) for start in range(7)]) for index in range(8)]
    small = [pod(f"small-{number}", "1g.5gb", created=number) for number in range(8)]
    large = pod("large", ("7g.40gb", 8), priority=priority)

    result = plan(cluster(server("node-1", *gpus), server("node-2", *gpus), pending=[large, *small]))

    assert not result.unplaced
    assert result.counts.partitions_destroyed == 7 * 8
