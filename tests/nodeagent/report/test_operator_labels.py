"""Labels of the GPU Operator on a node with an agent: a condition with the command, and one Event."""

import pytest

from crds.v1alpha1.gpu_operator import DEVICE_PLUGIN, MIG_MANAGER
from crds.v1alpha1.names import LABEL_NODE_AGENT
from tests.nodeagent.conftest import MakeWorld, empty
from tests.nodeagent.world import World

VALIDATOR = "nvidia.com/gpu.deploy.operator-validator"
BOTH = "kubectl label node gpu-node-1 nvidia.com/gpu.deploy.device-plugin=false"


def label(world: World, labels: dict[str, str]) -> None:
    world.node = {**world.node, "metadata": {**world.node["metadata"], "labels": labels}}


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    found = make_world(*empty())
    found.apply()
    return found


@pytest.mark.parametrize(
    ("labels", "expected", "command"),
    [
        ({}, ("True", ""), ""),
        ({VALIDATOR: "true"}, ("True", ""), ""),
        ({DEVICE_PLUGIN: "false", MIG_MANAGER: "false"}, ("True", ""), ""),
        (
            {DEVICE_PLUGIN: "true", MIG_MANAGER: "true"},
            ("False", "OperatorLabelsMissing"),
            f"{BOTH} nvidia.com/gpu.deploy.mig-manager=false --overwrite",
        ),
        ({DEVICE_PLUGIN: "true"}, ("False", "OperatorLabelsMissing"), f"{BOTH} --overwrite"),
        (
            {DEVICE_PLUGIN: "false", MIG_MANAGER: "paused-for-driver-upgrade"},
            ("False", "OperatorLabelsMissing"),
            "kubectl label node gpu-node-1 nvidia.com/gpu.deploy.mig-manager=false --overwrite",
        ),
        ({DEVICE_PLUGIN: "true", LABEL_NODE_AGENT: "true"}, ("True", ""), ""),
    ],
)
def test_condition(world: World, labels: dict[str, str], expected: tuple[str, str], command: str) -> None:
    label(world, labels)
    world.run()
    found = world.condition("OperatorLabels")
    assert (found["status"], found["reason"]) == expected
    assert command in found["message"]


def events(world: World) -> list[str]:
    return [message for _, reason, message in world.events if reason == "OperatorLabelsMissing"]


def test_one_event_once_no_client_has_set_them_for_some_seconds(world: World) -> None:
    label(world, {DEVICE_PLUGIN: "true"})
    world.run()
    assert events(world) == []

    world.clock.now += 10
    world.settle()
    assert len(events(world)) == 1
    assert f"{BOTH} --overwrite" in events(world)[0]

    label(world, {DEVICE_PLUGIN: "false"})
    world.settle()
    label(world, {DEVICE_PLUGIN: "true"})
    world.run()
    world.clock.now += 10
    world.settle()
    assert len(events(world)) == 2


def test_no_event_where_the_controller_sets_them(world: World) -> None:
    label(world, {DEVICE_PLUGIN: "true"})
    world.run()
    world.clock.now += 5
    label(world, {DEVICE_PLUGIN: "false"})
    world.settle()
    assert events(world) == []
