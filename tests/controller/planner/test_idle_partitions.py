"""What it may cost in idle partitions to place a pod more."""

import pytest

from benchmarks.instances import MIXES, instance
from controller.planner.placement import existing_supply
from controller.planning import plan


@pytest.mark.parametrize("mix", ["several", "plain"])
def test_idle_partitions_are_not_destroyed_by_the_dozen_for_one_pod(mix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = instance(nodes=100, gpus=8, pods=2_000, seed=61, mix=MIXES[mix])
    sparing = plan(snapshot)
    monkeypatch.setattr(existing_supply, "_PRICE", 10**6)
    at_any_price = plan(snapshot)

    lost = len(at_any_price.placed) - len(sparing.placed)
    spared = at_any_price.counts.partitions_destroyed - sparing.counts.partitions_destroyed
    assert 0 <= lost <= len(at_any_price.placed) / 200
    assert spared >= 12 * lost
    assert spared > 50
