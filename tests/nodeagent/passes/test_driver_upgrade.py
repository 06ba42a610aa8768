"""The GPU Operator replaces the driver: the agent lets it go in time, says so, and makes everything again."""

import pytest

from crds.v1alpha1.gpu_operator import UPGRADE_STATE, driver_unloads
from nodeagent.hardware.nvml_calls import NVML
from tests import incidents
from tests.builders.models import MODELS, T4
from tests.nodeagent.conftest import MakeWorld, plain
from tests.nodeagent.items import mig, mps
from tests.nodeagent.world import World

SLICE = "nvidia.com/mig-3g.40gb"
PAUSED = {"nvidia.com/gpu.deploy.driver": "true", "nvidia.com/gpu.deploy.dcgm": "paused-for-driver-upgrade"}


def label(world: World, labels: dict[str, str]) -> None:
    world.node = {**world.node, "metadata": {**world.node["metadata"], "labels": labels}}


def closed() -> bool:
    try:
        NVML.nvmlDeviceGetCount()
    except NVML.NVMLError_Uninitialized:
        return True
    return False


@pytest.fixture
def halves(make_world: MakeWorld) -> World:
    """An A100, which keeps its MIG mode, in two halves."""
    world = make_world((MODELS["A100-80GB"], {"mig_enabled": True}))
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle()
    return world


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, ""),
        ({UPGRADE_STATE: "upgrade-done"}, ""),
        ({UPGRADE_STATE: "pod-deletion-required"}, ""),
        ({UPGRADE_STATE: "pod-restart-required"}, f"{UPGRADE_STATE}=pod-restart-required"),
        ({UPGRADE_STATE: "validation-required"}, ""),
        (PAUSED, "nvidia.com/gpu.deploy.dcgm=paused-for-driver-upgrade"),
        (
            {"nvidia.com/gpu.deploy.dcgm": "true_paused-for-driver-upgrade"},
            "nvidia.com/gpu.deploy.dcgm=true_paused-for-driver-upgrade",
        ),
        ({"nvidia.com/gpu.deploy.dcgm": "paused-for-mig-change"}, ""),
    ],
)
def test_label_that_announces_it(labels: dict[str, str], expected: str) -> None:
    assert driver_unloads(labels) == expected


@pytest.mark.parametrize("labels", [{UPGRADE_STATE: "pod-restart-required"}, PAUSED])
def test_driver_is_let_go_and_the_layout_is_back_before_the_node_is_validated(
    halves: World, labels: dict[str, str]
) -> None:
    halves.effect.done.clear()
    label(halves, labels)
    halves.settle()

    assert closed()
    assert halves.advertised() == {}
    assert halves.found() == ("Changing", "DriverUpgrade")
    ready, reconciling = halves.condition("Ready"), halves.condition("Reconciling")
    assert (ready["status"], ready["reason"]) == ("False", "DriverUpgrade")
    assert "the agent has closed it until the label changes" in ready["message"]
    assert (reconciling["status"], reconciling["reason"]) == ("True", "DriverUpgrade")
    assert halves.condition("Stalled")["status"] == "False"
    assert not [done for done in halves.effect.done if "GI" in done or "CI" in done]

    incidents.reboot(halves.machine)  # as far as MIG is concerned
    assert halves.layout() == "empty"
    label(halves, {UPGRADE_STATE: "validation-required"})
    for _ in range(4):
        if halves.advertised():
            break
        halves.run()
        assert not halves.advertised() or halves.layout() == "3g.40gb at 0, 3g.40gb at 4", "the whole layout first"

    halves.settle()
    assert halves.layout() == "3g.40gb at 0, 3g.40gb at 4"
    assert halves.advertised() == {SLICE: 2}
    assert halves.found() == ("Ready", "Confirmed")
    assert not [reason for _, reason, _ in halves.events if reason == "DriftRepaired"]
    assert not halves.tainted()


def test_new_agent_after_the_upgrade_takes_lost_instances_for_no_drift(halves: World) -> None:
    label(halves, {UPGRADE_STATE: "pod-restart-required"})
    halves.settle()
    incidents.reboot(halves.machine)
    halves.restart()
    label(halves, {UPGRADE_STATE: "validation-required"})
    halves.settle()
    assert halves.advertised() == {SLICE: 2}
    assert not [reason for _, reason, _ in halves.events if reason == "DriftRepaired"]


def test_instance_that_a_pod_holds_still_is_neither_destroyed_nor_given_out(halves: World) -> None:
    """Where nothing evicted it: the operator's driver pod waits for it, and the driver was not unloaded."""
    pod = halves.pod(SLICE)
    halves.settle()
    label(halves, {UPGRADE_STATE: "pod-restart-required"})
    halves.settle()
    assert halves.advertised() == {}

    label(halves, {})
    halves.settle()

    assert halves.running[pod]
    assert halves.layout() == "3g.40gb at 0, 3g.40gb at 4"
    assert halves.advertised() == {SLICE: 2}
    assert halves.found() == ("Ready", "Confirmed")


def test_daemons_without_clients_end_and_slices_in_use_stay(make_world: MakeWorld) -> None:
    world = make_world((T4, {}), plain())
    world.apply(mps(0, 4, 4), mps(1, 20, 20))
    world.settle()
    world.pod("nvidia.com/gpu-4gb")
    world.settle()
    before = world.plugin.config.devices

    label(world, {UPGRADE_STATE: "pod-restart-required"})
    world.settle()

    left = [device.resource for device in world.plugin.config.devices]
    assert left == ["nvidia.com/gpu-4gb"], "the plugin ends the daemon of a GPU without slices"
    assert world.advertised() == {}

    label(world, {})
    world.settle()
    assert world.plugin.config.devices == before
    assert world.advertised() == {"nvidia.com/gpu-20gb": 2, "nvidia.com/gpu-4gb": 2}


def test_slices_that_the_plan_does_not_list_are_not_forgotten(make_world: MakeWorld) -> None:
    world = make_world((T4, {}))
    world.apply(mps(0, 4, 4))
    world.settle()
    world.apply()
    world.settle()

    label(world, {UPGRADE_STATE: "pod-restart-required"})
    world.settle()
    label(world, {})
    world.settle()

    assert world.advertised() == {"nvidia.com/gpu-4gb": 2}


def test_paused_slices_that_the_new_driver_left_out_do_not_become_a_whole_gpu(make_world: MakeWorld) -> None:
    world = make_world((T4, {}))
    world.apply(mps(0, 4, 4), paused=True)
    world.settle()
    world.apply(mps(0, 4, 4))
    world.settle()
    world.apply(mps(0, 4, 4), paused=True)
    label(world, {UPGRADE_STATE: "pod-restart-required"})
    world.settle()

    label(world, {})
    world.settle()
    assert world.advertised() == {}
    assert world.found() == ("Changing", "Paused")

    world.apply(mps(0, 4, 4))
    world.settle()
    assert world.advertised() == {"nvidia.com/gpu-4gb": 2}
