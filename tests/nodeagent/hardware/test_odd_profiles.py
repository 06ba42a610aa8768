"""What the driver says of a profile may be absurd: that costs one GPU, and never a pass."""

from typing import Any

import pytest

from tests.drawn import cells, points
from tests.nodeagent.conftest import MakeWorld, cut
from tests.nodeagent.hardware.machine import NVML
from tests.nodeagent.hardware.test_odd_answers import of_gpu
from tests.nodeagent.items import mig
from tests.nodeagent.report.schema import check

PROFILE_FIELDS = ("sliceCount", "instanceCount", "multiprocessorCount", "memorySizeMB", "id", "copyEngineCount")
INSTANCE_FIELDS = (
    ("nvmlGpuInstanceGetComputeInstanceProfileInfo", "sliceCount"),
    ("nvmlGpuInstanceGetComputeInstanceProfileInfo", "multiprocessorCount"),
    ("nvmlGpuInstanceGetComputeInstanceProfileInfo", "id"),
    ("nvmlGpuInstanceGetComputeInstanceProfileInfo", "instanceCount"),
    ("nvmlGpuInstanceGetInfo", "id"),
    ("nvmlGpuInstanceGetInfo", "profileId"),
    ("nvmlComputeInstanceGetInfo", "id"),
    ("nvmlComputeInstanceGetInfo", "profileId"),
)


@pytest.mark.parametrize("value", [0, 2**64 - 1])
@pytest.mark.parametrize("field", points(PROFILE_FIELDS, each=3))
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


@pytest.mark.parametrize(("said", "value"), points(cells(INSTANCE_FIELDS, [0, 2**64 - 1]), each=3), ids=str)
def test_an_absurd_number_of_an_instance_costs_no_other_gpu(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, said: tuple[str, str], value: int
) -> None:
    """Whichever GPU it is of: the other one is cut as planned, and nothing that is held goes."""
    world = make_world(cut(("3g.40gb", 0)), cut(("3g.40gb", 0)))
    world.settle(4)
    call, field = said
    mine, real = world.gpu(0).uuid, getattr(NVML, call)
    owned = {id_ for id_ in (instance.uuid for instance in world.gpu(0).instances)}
    pod = world.pod("nvidia.com/mig-3g.40gb", device=min(i for i in owned if i))

    def absurd(instance: Any, *rest: Any) -> Any:
        info = real(instance, *rest)
        of = NVML.nvmlGpuInstanceGetInfo if call != "nvmlGpuInstanceGetInfo" else real
        handle = info.device if hasattr(info, "device") else of(instance).device
        if NVML.nvmlDeviceGetUUID(handle) == mine:
            setattr(info, field, value)
        return info

    monkeypatch.setattr(NVML, call, absurd)
    world.restart()
    world.apply(mig(0, ("7g.80gb", 0)), mig(1, ("7g.80gb", 0)))

    world.settle()

    assert world.found(1) == ("Ready", "Confirmed")
    assert pod in world.running
    check(world)


def test_a_gpu_instance_whose_compute_instance_is_not_named_is_not_taken_for_a_half_made_one(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver would refuse to destroy it. Whether it does is not the agent's to try: a pod has the MIG device."""
    world = make_world(cut(("3g.40gb", 0)), cut(("3g.40gb", 0)))
    world.settle(4)
    pod, tried = world.pod("nvidia.com/mig-3g.40gb"), list[str]()
    real = NVML.nvmlGpuInstanceGetComputeInstanceProfileInfo

    def absurd(instance: Any, *rest: Any) -> Any:
        info = real(instance, *rest)
        info.id = 0  # that of the smallest one
        return info

    monkeypatch.setattr(NVML, "nvmlGpuInstanceGetComputeInstanceProfileInfo", absurd)
    for name in ("nvmlGpuInstanceDestroy", "nvmlComputeInstanceDestroy", "nvmlGpuInstanceCreateComputeInstance"):
        monkeypatch.setattr(NVML, name, lambda *_arguments, name=name: tried.append(name))
    world.restart()
    world.apply(mig(0, ("7g.80gb", 0)), mig(1, ("7g.80gb", 0)))

    world.settle()

    assert tried == []
    assert pod in world.running
    assert all("names no compute instance" in (world.gpu_status(index).get("message") or "") for index in (0, 1))
    check(world)
