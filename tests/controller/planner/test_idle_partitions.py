"""What it may cost in idle partitions to place a pod more."""

import pytest

from benchmarks.instances import MIXES, instance
from controller.planner.placement import existing_supply
from controller.planning import plan


@pytest.mark.parametrize("seed", [61, 7103])
def test_idle_partitions_are_not_destroyed_by_the_dozen_for_one_pod(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = instance(nodes=100, gpus=8, pods=2_000, seed=seed, mix=MIXES["plain"])
    sparing = plan(snapshot)
    monkeypatch.setattr(existing_supply, "_PRICE", 10**6)
    at_any_price = plan(snapshot)

    lost = len(at_any_price.placed) - len(sparing.placed)
    spared = at_any_price.counts.partitions_destroyed - sparing.counts.partitions_destroyed
    assert 1 <= lost <= 2
    assert spared >= 12 * lost
