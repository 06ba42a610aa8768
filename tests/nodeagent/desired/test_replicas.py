"""What an item with equal replicas becomes: its limits, its resource, and the number that is refused."""

from dataclasses import replace

import pytest

from crds.v1alpha1.spec import GpuItem
from nodeagent.desired.target import MpsTarget, NodeDefaults, Refusal, target
from nodeagent.hardware.driver import ObservedGpu
from tests.builders.models import H100
from tests.nodeagent.items import replicas

GPU = ObservedGpu(index=0, uuid="GPU-1", name="H100", model=H100)


@pytest.mark.parametrize(
    ("count", "driver", "refused"),
    [(48, "580.95.05", ""), (49, "580.95.05", "write 48 or less"), (60, "590.44.01", ""), (2, "", "")],
)
def test_driver_and_model_decide_how_many(count: int, driver: str, refused: str) -> None:
    found = target(GpuItem.read(replicas(0, count)), GPU, (), NodeDefaults(driver_version=driver))
    if refused:
        assert isinstance(found, Refusal)
        assert refused in found.message
    else:
        assert isinstance(found, MpsTarget)
        assert len(found.slices) == count


@pytest.mark.parametrize("capability", [(6, 1), (0, 0)], ids=["Pascal", "not known"])
def test_before_volta_an_administrator_must_allow_replicas(capability: tuple[int, int]) -> None:
    gpu = replace(GPU, model=replace(H100, compute_capability=capability))
    item = GpuItem.read(replicas(0, 4))

    found = target(item, gpu, (), NodeDefaults())
    assert isinstance(found, Refusal)
    assert "can read and write the GPU memory of the others" in found.message
    assert isinstance(target(item, gpu, (), NodeDefaults(replicas_before_volta=True)), MpsTarget)


@pytest.mark.parametrize(
    ("item", "node", "resource"),
    [(None, True, "nvidia.com/gpu.shared"), (None, False, "nvidia.com/gpu"), (True, False, "nvidia.com/gpu.shared")],
)
def test_an_item_goes_before_the_node(item: bool | None, node: bool, resource: str) -> None:
    more = {} if item is None else {"renameByDefault": item}
    found = target(GpuItem.read(replicas(0, 2, **more)), GPU, (), NodeDefaults(renames_replicas=node))
    assert isinstance(found, MpsTarget)
    assert {share.resource for share in found.slices} == {resource}
