"""What the status contains: sizes, times, hashes, and when it is written."""

from itertools import pairwise
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from crds.definition import definition
from crds.v1alpha1.plan import item_hash
from crds.v1alpha1.spec import GpuItem
from nodeagent.handover.config import Problem
from nodeagent.report.publish import same
from sandbox.driver import incidents
from tests.nodeagent.conftest import T4, MakeWorld, cut, empty, plain
from tests.nodeagent.items import mig
from tests.nodeagent.world import World

Raw = dict[str, Any]


def check(world: World) -> None:
    """Against the schema of the CRD."""
    schema = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    problems = [error.message for error in Draft202012Validator(schema).iter_errors(world.status())]
    assert problems == []
    assert [c["type"] for c in world.status()["conditions"] if not c["message"]] == []


def test_it_fits_the_schema_in_every_state(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4)), plain(), (T4, {}))
    world.settle(3)
    world.pod("nvidia.com/mig-3g.40gb")
    world.apply(
        mig(0, ("7g.80gb", 0)),
        {"index": 1, "mps": {"slices": [{"memoryGB": 1, "count": 48}]}},
        mig(2, "1g.10gb"),
        mig(9, "1g.10gb"),
    )

    for _ in range(8):
        world.run()
        check(world)

    assert len(world.gpu_status(1)["partitions"]) == 48
    assert world.status()["summary"] == {"mode": "Auto", "mig": "1/1", "mps": "0/48", "whole": "0/1"}


def test_a_plan_that_cannot_be_read_is_reported_and_changes_nothing(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4)))
    world.apply(mig(0, ("7g.80gb", -1)))

    world.settle()

    assert world.layout() == "3g.40gb at 4"
    assert world.condition("Ready")["reason"] == "InvalidLayout"
    assert "start: Input should be greater than or equal to 0" in world.condition("Ready")["message"]
    assert world.condition("Stalled")["status"] == "True"
    check(world)


def test_a_problem_of_the_plugin_as_a_whole_is_shown_and_costs_no_readiness(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4)))
    world.plugin.problems = (Problem(message="registrations are not verified"),)
    world.apply(mig(0, ("3g.40gb", 4)))

    world.settle()

    assert world.condition("Ready")["status"] == "True"
    assert world.condition("Advertised")["status"] == "True"
    assert world.condition("Advertised")["message"] == "device plugin: registrations are not verified"


def test_models_come_from_nvml_once_each(make_world: MakeWorld) -> None:
    world = make_world(*empty(2), (T4, {}))
    world.apply()

    world.settle()

    names = [model["name"] for model in world.status()["models"]]
    assert names == ["NVIDIA H100 80GB HBM3", "Tesla T4"]
    assert world.status()["models"][0]["computeCapability"] == "9.0"
    profiles = {profile["name"]: profile["starts"] for profile in world.status()["models"][0]["profiles"]}
    assert profiles["3g.40gb"] == [0, 4]


def test_the_plan_hash_is_that_of_the_item_that_was_confirmed(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4)))
    first, second = mig(0, ("3g.40gb", 4)), mig(0, ("7g.80gb", 0))
    world.apply(first)
    world.settle()
    confirmed = item_hash(GpuItem.read(first))
    assert world.gpu_status()["planHash"] == confirmed

    holder = world.pod("nvidia.com/mig-3g.40gb")
    world.apply(second)
    world.settle()
    assert (world.found()[0], world.gpu_status()["planHash"]) == ("WaitingForRelease", confirmed)
    world.restart()
    world.settle()
    assert world.gpu_status()["planHash"] == confirmed

    world.finish(holder)
    world.settle()
    assert world.gpu_status()["planHash"] == item_hash(GpuItem.read(second))


def test_ready_carries_the_generation_and_moves_its_time_with_its_status_only(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply(mig(0, ("3g.40gb", 4)))
    world.settle()
    first = world.condition("Ready")

    world.apply(mig(0, ("3g.40gb", 4)), planned=[])
    world.run()
    again = world.condition("Ready")
    assert (again["status"], again["observedGeneration"]) == ("True", 2)
    assert again["lastTransitionTime"] == first["lastTransitionTime"]

    world.apply(mig(0, ("7g.80gb", 0)))
    world.run()
    busy = world.condition("Ready")
    assert (busy["status"], busy["observedGeneration"]) == ("False", 3)
    assert busy["lastTransitionTime"] != first["lastTransitionTime"]
    assert world.condition("Reconciling")["status"] == "True"
    assert world.status()["observedGeneration"] == 3


def test_every_condition_but_the_controllers_is_in_the_first_status(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply()
    world.run()

    assert [condition["type"] for condition in world.status()["conditions"]] == [
        "Advertised",
        "Applied",
        "Drifted",
        "GPUsHealthy",
        "OwnershipConflict",
        "Ready",
        "Reconciling",
        "Stalled",
    ]


def test_drift_is_shown_while_it_is_healed(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply(mig(0, ("3g.40gb", 4)))
    world.settle()
    gpu = world.gpu()
    world.driver.create_gpu_instance(gpu.uuid, gpu.instances[0].placed.__class__(start=0, size=1, profile="1g.10gb"))
    half = next(instance for instance in world.gpu().instances if instance.half_made)
    world.driver.create_compute_instance(gpu.uuid, half.id)

    world.run()
    assert world.condition("Drifted")["status"] == "True"
    world.settle()
    assert world.condition("Drifted")["status"] == "False"
    assert world.layout() == "3g.40gb at 4"


def test_another_plugin_on_the_node_is_an_ownership_conflict(make_world: MakeWorld) -> None:
    world = make_world(plain())
    world.apply()
    world.settle()

    for _ in range(70):
        world.plugin.step()
        world.kubelet.step()
        world.kubelet.devices["nvidia.com/gpu"] = (*world.kubelet.devices["nvidia.com/gpu"], "GPU-ffff")
        world.pass_only()
        world.clock.now += 0.5

    assert world.condition("OwnershipConflict")["status"] == "True"
    assert "GPU-ffff" in world.condition("OwnershipConflict")["message"]


def test_alongside_another_plugin_ours_advertises_and_changes_nothing(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4)))
    three = "nvidia.com/mig-3g.40gb"
    world.apply(mig(0, ("3g.40gb", 4)))
    world.settle()

    for n in range(90):
        world.step()
        if n % 2 or not world.advertised():
            world.kubelet.devices[three] = (f"MIG-{n}::0",)
        if n == 80:
            world.apply(mig(0, ("7g.80gb", 0)))
        world.pass_only()

    assert world.plugin.advertised() == {three: ()}
    assert world.layout() == "3g.40gb at 4"
    assert world.found() == ("Failed", "ForeignOwner")
    assert world.condition("Ready")["status"] == "False"
    assert not world.tainted()

    world.clock.now += 31
    world.settle(12)
    assert world.advertised() == {"nvidia.com/mig-7g.80gb": 1}
    assert world.found() == ("Ready", "Confirmed")


@pytest.mark.parametrize(
    ("managed", "gpus", "message"),
    [
        (1, 1, "1 GPU matches the plan."),
        (1, 2, "1 GPU matches the plan (1 unmanaged)."),
        (2, 4, "2 GPUs match the plan (2 unmanaged)."),
        (0, 1, "No GPU is in the plan (1 unmanaged)."),
    ],
)
def test_one_gpu_is_and_two_are(make_world: MakeWorld, managed: int, gpus: int, message: str) -> None:
    world = make_world(*empty(gpus))
    world.apply(*(mig(index, ("7g.80gb", 0)) for index in range(managed)))
    world.settle()

    assert world.condition("Ready")["message"] == message


def test_while_the_device_plugin_is_down_one_sentence_names_its_pod(make_world: MakeWorld) -> None:
    world = make_world(*empty(3))
    world.apply(*(mig(index, "1g.10gb*7") for index in range(3)))
    world.settle()
    world.events.clear()
    world.plugin.alive = False

    for _ in range(80):
        world.run()

    ready = world.condition("Ready")
    assert ready["reason"] == "AdvertiseTimeout"
    assert ready["message"] == (
        "GPUs 0, 1, 2: the kubelet does not show any of its devices (nvidia.com/mig-1g.10gb) after 30 s: see whether "
        "the device plugin runs (pod of DaemonSet gpuplan-device-plugin on this node), its log and the kubelet's, and "
        "whether another plugin serves these resources"
    )
    warned = [(reason, message) for _, reason, message in world.events]
    assert [reason for reason, _ in warned] == ["AdvertiseTimeout"] * 3
    assert "DaemonSet gpuplan-device-plugin" in warned[0][1]
    check(world)


def test_a_config_that_waits_for_the_device_plugin_names_its_pod_soon(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply(mig(0, "1g.10gb*7"))
    world.settle()
    world.plugin.alive = False
    world.apply(mig(0, "1g.10gb*6"))
    world.settle(5)
    assert world.found() == ("Changing", "Withdrawing")
    assert "DaemonSet" not in world.condition("Ready")["message"]

    world.settle(12)
    assert world.found() == ("Changing", "Withdrawing")
    assert "DaemonSet gpuplan-device-plugin" in world.condition("Ready")["message"]

    world.events.clear()
    world.clock.now += 61
    world.settle(3)
    assert world.found() == ("Failed", "DevicePluginError")
    assert [reason for _, reason, _ in world.events] == ["DevicePluginError"]

    world.plugin.alive = True
    world.settle()
    assert world.found() == ("Ready", "Confirmed")


def test_the_log_has_one_line_per_change_and_no_list_twice(
    make_world: MakeWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    world = make_world(*empty())
    world.apply(mig(0, ("3g.40gb", 4)))
    world.settle()
    world.apply(mig(0, ("3g.40gb", 0)))
    world.settle()
    world.apply(mig(0, ("7g.80gb", 0)))
    world.settle()

    lines = [record.getMessage() for record in caplog.records]
    assert "GPU 0: Ready (Confirmed)" in lines
    assert [line for line in lines if line != line.strip()] == []
    offers = [line for line in lines if line.startswith("advertised to the kubelet")]
    assert len(offers) > 1
    assert all(one != other for one, other in pairwise(offers))


READY = {"type": "Ready", "status": "True"}
STATUS: Raw = {"observedGeneration": 1, "gpus": [], "conditions": [READY]}


@pytest.mark.parametrize(
    ("live", "equal"),
    [
        ({**STATUS}, True),
        ({**STATUS, "conditions": [READY, {"type": "AgentAlive", "status": "True"}]}, True),
        ({**STATUS, "observedGeneration": 2}, False),
        ({**STATUS, "conditions": [{"type": "Ready", "status": "Unknown"}]}, False),
        ({**STATUS, "conditions": [READY, {"type": "Stalled", "status": "True"}]}, False),
        ({**STATUS, "summary": {}}, False),
        ({}, False),
    ],
)
def test_the_live_object_decides_whether_to_write(live: Raw, equal: bool) -> None:
    assert same(STATUS, live) is equal


def test_a_lost_gpu_is_named_once_with_what_to_do(make_world: MakeWorld) -> None:
    world = make_world(*empty(2))
    world.apply(mig(0, "1g.10gb"), mig(1, "1g.10gb"))
    world.settle()
    incidents.lose(world.machine, world.gpu(0).uuid)
    for _ in range(20):
        world.run()

    assert world.found(0) == ("Failed", "Unhealthy")
    message = world.condition("Ready")["message"]
    assert message.startswith("GPU 0: GPU is lost: drain the node, then reboot it or reset the GPU; ")
    assert message.count("GPU 0") == 1
    assert world.condition("GPUsHealthy")["status"] == "False"
    check(world)
