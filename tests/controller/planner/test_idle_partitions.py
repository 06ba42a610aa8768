"""What it may cost in idle partitions to place a pod more."""

from dataclasses import replace

import pytest

from benchmarks.instances import MIXES, instance
from controller.planning import plan

_LEFT_OUT = 6
_COMPUTE_SLICES = 7


@pytest.mark.parametrize("seed", [61, 501, 7103])
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
