"""Which ids the agent advertises for MIG instances, whatever NVML answers where its sources disagree or it refuses."""

import pytest

from sandbox.driver.status import Status
from tests import faults
from tests.nodeagent.conftest import MakeWorld, cut
from tests.nodeagent.items import mig
from tests.quirks import Quirks


@pytest.mark.parametrize(
    "quirks",
    [Quirks(), Quirks(names_mig_device=True), Quirks(mig_index_gaps=True)],
    ids=["by-the-header", "mig", "gaps"],
)
def test_each_instance_is_advertised_under_its_own_mig_uuid(make_world: MakeWorld, quirks: Quirks) -> None:
    world = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)), quirks=quirks)
    world.apply(mig(0, ("3g.40gb", 0), ("1g.10gb", 4), ("1g.10gb", 5)))

    world.settle()

    assert world.found() == ("Ready", "Confirmed")
    ids = [device_id for ids in world.kubelet.devices.values() for device_id in ids]
    assert len(ids) == len(set(ids)) == 3
    assert all(device_id.startswith("MIG-") for device_id in ids)


@pytest.mark.parametrize(
    "symbol", ["nvmlDeviceGetGpuInstanceProfileInfoV", "nvmlGpuInstanceGetComputeInstanceProfileInfoV"]
)
def test_profiles_that_the_driver_refuses_once_withdraw_nothing(make_world: MakeWorld, symbol: str) -> None:
    world = make_world(cut(("3g.40gb", 0), ("2g.20gb", 4)))
    world.apply(mig(0, ("3g.40gb", 0), ("2g.20gb", 4)))
    world.settle()
    before = world.advertised()
    world.restart()
    faults.inject(world.machine, symbol, status=Status.INVALID_ARGUMENT, times=faults.ALWAYS)

    world.settle(3)
    assert world.found() == ("Failed", "Unhealthy")
    assert world.advertised() == before

    faults.clear(world.machine)
    world.settle()
    assert world.found() == ("Ready", "Confirmed")
    assert world.advertised() == before
