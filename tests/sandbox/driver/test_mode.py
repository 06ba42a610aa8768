"""The MIG mode over changes, resets and reboots, on both kinds of chips."""

import pytest

from sandbox.driver.store import Store
from tests import incidents
from tests.sandbox.driver.calls import code_of, create, gpu, mig_devices, nvml
from tests.sandbox.driver.conftest import Simulate


@pytest.mark.parametrize(("key", "after"), [("A100-40GB", [1, 1]), ("H100-80GB", [0, 0])])
def test_reboot_takes_instances_and_on_hopper_the_mode(simulate: Simulate, key: str, after: list[int]) -> None:
    path = simulate(key, key, mig_enabled=True)
    uuids = [nvml.nvmlDeviceGetUUID(gpu(index)) for index in (0, 1)]
    create(gpu(), 15)
    incidents.reboot(path, order=(1, 0))
    assert nvml.nvmlDeviceGetMigMode(gpu(0)) == after
    assert mig_devices(gpu(1)) == []
    assert [nvml.nvmlDeviceGetUUID(gpu(index)) for index in (1, 0)] == uuids


def test_the_driver_may_be_missing(simulate: Simulate) -> None:
    path = simulate("H100-80GB", init=False)
    incidents.set_driver_loaded(path, False)
    assert code_of(nvml.nvmlInit) == nvml.NVML_ERROR_DRIVER_NOT_LOADED
    assert Store(path).read()["driver_loaded"] is False
