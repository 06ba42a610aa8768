"""GiB of ACK's resource: units that a container gets from one GPU, reported by holder."""

from nodeagent.handover.config import DeviceKind
from tests.nodeagent.conftest import MakeWorld, plain
from tests.nodeagent.items import Raw

ACK = "aliyun.com/gpu-mem"


def gib(index: int, number: int) -> Raw:
    return {"index": index, "mps": {"slices": [{"memoryGiB": number}]}}


def test_units_are_reported_by_holder(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.apply(gib(0, 79))
    world.settle()

    assert world.advertised() == {ACK: 79}
    assert {(d.kind, d.memory_mib, d.mergeable) for d in world.plugin.config.devices} == {(DeviceKind.MPS, 1024, True)}
    holder = world.pod(ACK, count=10)
    world.settle()

    assert world.found() == ("Ready", "Confirmed")
    listed = [(p["memoryMiB"], p["state"], p.get("pod", "")) for p in world.gpu_status()["partitions"]]
    assert listed == [(10 * 1024, "Used", "default/p1"), (69 * 1024, "Free", "")]
    assert world.status()["summary"]["mps"] == "1/2"

    world.apply(gib(0, 20))
    world.settle()
    assert world.found() == ("Ready", "Confirmed")
    assert world.advertised() == {ACK: 20}
    assert set(world.running[holder]) <= {device.id for device in world.plugin.config.advertised()}


def test_what_is_missing_is_one_line(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.settle(3)
    world.pod("nvidia.com/gpu")
    world.apply(gib(0, 79))
    world.settle()
    assert world.gpu_status()["missing"] == ["79 of aliyun.com/gpu-mem"]


def test_a_condition_says_what_units_do_not_give(make_world: MakeWorld) -> None:
    world = make_world(plain(), plain())
    world.apply(gib(0, 79))
    world.settle()
    one = world.condition("MemoryOnly")
    assert (one["status"], one["reason"]) == ("True", "SharedByMemory")
    assert one["message"] == "GPU 0: memory is limited per container, compute is not."

    world.apply(gib(0, 79), gib(1, 79))
    world.settle()
    assert "sum of 2 GPUs" in world.condition("MemoryOnly")["message"]

    world.apply()
    world.settle()
    world.apply({"index": 0, "whole": {}}, {"index": 1, "whole": {}})
    world.settle()
    assert world.condition("MemoryOnly")["status"] == "False"
