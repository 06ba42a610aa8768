"""What no second pod may get leaves the kubelet's list also while the driver, or one GPU, does not answer."""

from collections.abc import Callable

import pytest

from tests import faults
from tests.nodeagent.halves import THREE
from tests.nodeagent.items import mig
from tests.nodeagent.world import World

Key = tuple[str, str]


def lose_record(world: World, key: Key) -> None:
    world.kubelet.held[key] = {}
    world.kubelet.entries = ()


def delete_by_force(world: World, key: Key) -> None:
    world.force_delete(key, seen_by_driver=False)


@pytest.mark.parametrize("function", ["nvmlDeviceGetCount_v2", "nvmlDeviceGetName"], ids=["the driver", "the GPU"])
@pytest.mark.parametrize("happens", [lose_record, delete_by_force])
def test_no_other_pod_gets_it(world: World, happens: Callable[[World, Key], None], function: str) -> None:
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    key = world.pod(THREE)
    world.settle()
    (device,) = world.running[key]
    faults.inject(world.machine, function, times=faults.ALWAYS)
    world.run()

    happens(world, key)
    for _ in range(8):
        world.run()

    assert device not in world.kubelet.devices[THREE]
    faults.clear(world.machine)
    for _ in range(30):
        world.run()
    assert device not in world.kubelet.devices[THREE]
    assert len(world.kubelet.devices[THREE]) == 1
