"""What the driver says of a profile may be absurd: that costs one GPU, and never a pass."""

from typing import Any

import pytest

from tests.nodeagent.conftest import MakeWorld, cut
from tests.nodeagent.hardware.machine import NVML
from tests.nodeagent.hardware.test_odd_answers import of_gpu
from tests.nodeagent.items import mig
from tests.nodeagent.report.schema import check

PROFILE_FIELDS = ("sliceCount", "instanceCount", "multiprocessorCount", "memorySizeMB", "id", "copyEngineCount")


@pytest.mark.parametrize("value", [0, 2**64 - 1])
@pytest.mark.parametrize("field", PROFILE_FIELDS)
def test_an_absurd_number_in_a_profile_costs_no_other_gpu(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, field: str, value: int
) -> None:
    world = make_world(cut(("3g.40gb", 0)), cut(("3g.40gb", 0)))
    real = NVML.nvmlDeviceGetGpuInstanceProfileInfo

    def absurd(handle: Any, index: int, *rest: Any) -> Any:
        info = real(handle, index, *rest)
        setattr(info, field, value)
        return info

    of_gpu(world.gpu(0).uuid, monkeypatch, "nvmlDeviceGetGpuInstanceProfileInfo", absurd)
    world.restart()
    world.apply(mig(0, "3g.40gb*2"), mig(1, ("7g.80gb", 0)))

    world.settle()

    assert world.found(1) == ("Ready", "Confirmed")
    check(world)
