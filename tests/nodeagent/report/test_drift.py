"""What is changed by hand on a GPU of the plan is undone, with an Event and a count; our own work is no drift."""

from collections.abc import Callable

import pytest

from nodeagent.hardware.nvml import NvmlDriver
from partitioning.layouts import Instance
from tests import incidents
from tests.nodeagent.conftest import MakeWorld, empty
from tests.nodeagent.items import mig
from tests.nodeagent.world import World

ONE = Instance(start=0, size=1, profile="1g.10gb")


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    found = make_world(*empty(2))
    found.apply(mig(0, ("3g.40gb", 4)))
    found.settle()
    assert found.found() == ("Ready", "Confirmed")
    return found


def create_by_hand(index: int = 0) -> None:
    driver = NvmlDriver()
    gpu = driver.observe()[index]
    made = driver.create_gpu_instance(gpu.uuid, ONE)
    driver.create_compute_instance(gpu.uuid, made)


def destroy_by_hand() -> None:
    driver = NvmlDriver()
    gpu = driver.observe()[0]
    for instance in gpu.instances:
        for compute in instance.compute:
            driver.destroy_compute_instance(gpu.uuid, instance, compute)
        driver.destroy_gpu_instance(gpu.uuid, instance)


def repairs(world: World) -> list[str]:
    return [message for _, reason, message in world.events if reason == "DriftRepaired"]


def assert_only_later_drift_is_reported(world: World) -> None:
    assert world.layout() == "3g.40gb at 4"
    assert repairs(world) == []
    create_by_hand()
    world.settle()
    assert len(repairs(world)) == 1


def counted(world: World) -> tuple[float, float]:
    """Created, destroyed."""
    sample = world.metrics.registry.get_sample_value
    name = "gpuplan_agent_drift_repaired_total"
    return sample(name, {"action": "create"}) or 0.0, sample(name, {"action": "destroy"}) or 0.0


@pytest.mark.parametrize(
    ("drift", "sentence", "count"),
    [
        (
            create_by_hand,
            "1g.10gb at 0 was created outside gpuplan, was unused and is destroyed.",
            (0.0, 1.0),
        ),
        (destroy_by_hand, "3g.40gb at 4 was destroyed outside gpuplan and is created again.", (1.0, 0.0)),
    ],
)
@pytest.mark.parametrize("restarted", [False, True])
def test_what_was_changed_by_hand_is_changed_back_and_reported(
    world: World, drift: Callable[[], None], sentence: str, count: tuple[float, float], restarted: bool
) -> None:
    drift()
    if restarted:
        world.restart()
    world.settle()

    assert world.layout() == "3g.40gb at 4"
    assert repairs(world) == [f"GPU 0: {sentence} Change the plan instead of the hardware."]
    assert counted(world) == count


def test_a_gpu_that_the_plan_does_not_list_keeps_what_was_created_by_hand(world: World) -> None:
    create_by_hand(1)
    world.settle()

    assert world.layout(1) == "1g.10gb at 0"
    assert repairs(world) == []


def test_the_agents_own_changes_are_no_drift(world: World) -> None:
    world.apply(mig(0, ("7g.80gb", 0)))
    world.settle()
    world.apply(mig(0, ("1g.10gb", 0), "2g.20gb"))
    world.settle()
    world.apply()
    world.settle()
    world.apply(mig(0, ("1g.10gb", 3)))
    world.settle()

    assert world.layout() == "1g.10gb at 3"
    assert repairs(world) == []


def test_a_plan_that_returns_before_the_other_was_confirmed_is_no_drift(world: World) -> None:
    world.apply(mig(0, ("7g.80gb", 0)))
    while world.layout() != "7g.80gb at 0":
        world.run()
    assert world.found()[0] != "Ready"
    world.apply(mig(0, ("3g.40gb", 4)))
    world.settle()

    assert_only_later_drift_is_reported(world)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_plan_that_returns_while_a_pod_keeps_the_other_from_being_confirmed_is_no_drift(
    world: World, restarted: bool
) -> None:
    first = mig(0, ("1g.10gb", 0), ("3g.40gb", 4))
    world.apply(first)
    world.settle()
    world.pod("nvidia.com/mig-3g.40gb")
    world.settle()
    world.apply(mig(0, ("2g.20gb", 0), ("2g.20gb", 4)))
    world.settle()
    assert (world.layout(), world.found()[0]) == ("2g.20gb at 0, 3g.40gb at 4", "WaitingForRelease")
    if restarted:
        world.restart()
    world.apply(first)

    drifted = []
    while world.found()[0] != "Ready":
        world.run()
        drifted.append(world.condition("Drifted")["status"])
    assert set(drifted) == {"False"}
    assert repairs(world) == []
    assert world.layout() == "1g.10gb at 0, 3g.40gb at 4"


def test_a_gpu_that_is_reset_after_it_was_lost_is_no_drift(world: World) -> None:
    uuid = world.gpu().uuid
    incidents.lose(world.machine, uuid)
    world.settle(5)
    incidents.find_again(world.machine, uuid)
    destroy_by_hand()
    world.settle()
    assert_only_later_drift_is_reported(world)


@pytest.mark.parametrize("node_known_late", [False, True])
def test_a_reboot_is_no_drift(world: World, node_known_late: bool) -> None:
    destroy_by_hand()
    world.node["status"]["nodeInfo"]["bootID"] = "another"
    world.restart()
    if node_known_late:
        world.latest_node.on_event(None, None, None)
        world.agent.reconcile()
    world.settle()

    assert_only_later_drift_is_reported(world)
