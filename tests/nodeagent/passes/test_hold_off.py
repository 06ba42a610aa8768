"""A person works on the driver: gpuplan closes it, says who else has it open, and goes on when the label goes."""

import shutil
from dataclasses import replace

import pytest

from crds.v1alpha1.gpu_operator import UNLOADING, UPGRADE_STATE
from crds.v1alpha1.names import CLOSED, LABEL_DRIVER
from partitioning.models import GpuModel
from sandbox.driver import clients, smi
from sandbox.driver.machine import observe
from sandbox.driver.procfs import proc_of
from tests import incidents
from tests.builders.models import H100, MODELS, T4
from tests.drawn import points, thorough
from tests.nodeagent.conftest import MakeWorld
from tests.nodeagent.items import mig, mps, started
from tests.nodeagent.world import World

SLICE = "nvidia.com/mig-3g.40gb"
A100 = MODELS["A100-80GB"]


def hold_off(world: World, value: str | None = CLOSED) -> None:
    labels = {LABEL_DRIVER: value} if value else {}
    world.node = {**world.node, "metadata": {**world.node["metadata"], "labels": labels}}


def released(world: World) -> tuple[str, str]:
    condition = world.condition("DriverReleased")
    return condition["status"], condition["reason"]


# The world's own readings would keep the driver open: the state of the machine shows it here.


def type_in(world: World, *words: str) -> int:
    """On the node."""
    return smi.main([str(world.machine), "-i", "0", *words])


@pytest.fixture
def halves(make_world: MakeWorld) -> World:
    world = make_world((H100, {"mig_enabled": True}))
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle()
    return world


def test_nothing_is_released_before_it_is_requested(halves: World) -> None:
    assert released(halves) == ("False", "")
    assert clients.any_open(halves.machine)
    assert type_in(halves, "--gpu-reset") == 1, "the agent has it open"


def test_hold_off_reset_and_back(halves: World) -> None:
    hold_off(halves)
    halves.settle()
    assert released(halves) == ("True", "DriverClosed")
    assert halves.advertised() == {}
    assert halves.found() == ("Changing", "DriverClosed")
    assert halves.condition("Ready")["reason"] == "DriverClosed"
    assert halves.condition("Stalled")["status"] == "False"
    assert not clients.any_open(halves.machine)
    assert "No other program has it open" in halves.condition("DriverReleased")["message"]

    assert type_in(halves, "--gpu-reset") == 0
    halves.settle(3)
    assert released(halves) == ("True", "DriverClosed")

    hold_off(halves, None)
    halves.settle()
    assert released(halves) == ("False", "")
    assert halves.found() == ("Ready", "Confirmed")
    assert halves.advertised() == {SLICE: 2}
    assert not [event for event in halves.events if event[1] == "DriftRepaired"]


def test_it_lasts_over_a_restart_of_the_agent(halves: World) -> None:
    hold_off(halves)
    halves.settle()
    halves.restart()
    halves.settle(3)
    assert not clients.any_open(halves.machine)
    assert released(halves) == ("True", "DriverClosed")
    assert halves.advertised() == {}


@pytest.mark.parametrize("model", [H100, A100], ids=["without a reset", "by a reset"])
def test_mig_mode_is_turned_on_under_it(make_world: MakeWorld, model: GpuModel) -> None:
    world = make_world((model, {}))
    world.apply(mig(0, "3g.40gb*2"))
    world.settle()
    assert world.found() == ("Failed", "MIGModeDisabled")
    remedy = world.gpu_status()["message"]
    assert f"label the node {LABEL_DRIVER}={CLOSED}, drain it" in remedy
    assert "run nvidia-smi -i 0 -mig 1" in remedy
    type_in(world, "-mig", "1")
    assert not observe(world.machine)["gpus"][0]["mig_mode"], "while the agent has the driver open it stays off"

    hold_off(world)
    world.settle()
    assert released(world) == ("True", "DriverClosed")
    assert type_in(world, "-mig", "1") == 0
    hold_off(world, None)
    world.settle()
    assert world.found() == ("Ready", "Confirmed")
    assert world.advertised() == {SLICE: 2}


def test_pod_that_holds_a_device_is_waited_for(halves: World) -> None:
    pod = halves.pod(SLICE)
    halves.settle()
    hold_off(halves)
    halves.settle()
    assert released(halves) == ("False", "WaitingForRelease")
    assert f"pod {pod[0]}/{pod[1]}: drain the node" in halves.condition("DriverReleased")["message"]
    assert halves.running[pod]
    assert halves.advertised() == {}
    halves.finish(pod)
    halves.settle()
    assert released(halves) == ("True", "DriverClosed")


def test_daemons_of_slices_are_waited_for(make_world: MakeWorld) -> None:
    world = make_world((T4, {}))
    world.apply(mps(0, 4, 4))
    world.settle()
    hold_off(world)
    world.settle()
    assert released(world) == ("True", "DriverClosed")
    assert not world.plugin.config.devices
    hold_off(world, None)
    world.settle()
    assert world.advertised() == {"nvidia.com/gpu-4gb": 2}


def test_kubelet_that_does_not_answer_is_no_release(halves: World) -> None:
    halves.kubelet.refuses = "it is away"
    hold_off(halves)
    halves.settle()
    assert released(halves)[0] == "False"


def test_lost_gpu_is_well_again_after_what_its_message_says(halves: World) -> None:
    incidents.lose(halves.machine, observe(halves.machine)["gpus"][0]["uuid"])
    halves.settle()
    assert f"label the node {LABEL_DRIVER}={CLOSED}, drain it" in halves.gpu_status()["message"]
    assert type_in(halves, "--gpu-reset") == 1
    hold_off(halves)
    halves.settle()
    assert type_in(halves, "--gpu-reset") == 0
    hold_off(halves, None)
    for _ in range(60):
        halves.run(1.0)
    assert halves.found() == ("Ready", "Confirmed")
    assert halves.advertised() == {SLICE: 2}


@pytest.mark.parametrize("value", ["open", "Closed", ""])
def test_other_values_close_nothing(halves: World, value: str) -> None:
    hold_off(halves, value or None)
    halves.settle(3)
    assert halves.advertised() == {SLICE: 2}
    assert clients.any_open(halves.machine)


def test_a_node_that_takes_no_taint_is_held_off_too(halves: World) -> None:
    """The taint spares pods a refusal; they must not get devices of a driver that is about to go instead."""
    halves.taint_refused = "403"
    hold_off(halves)
    halves.settle(3)
    assert halves.advertised() == {}
    assert not halves.running.get(halves.pod(SLICE))
    for _ in range(70):
        halves.run(1.0)
    assert released(halves) == ("True", "DriverClosed")

    hold_off(halves, None)
    halves.settle()
    assert halves.found() == ("Ready", "Confirmed")
    assert halves.advertised() == {SLICE: 2}


@pytest.mark.parametrize("restarted", [False, True], ids=["the same agent", "an agent that never had the driver open"])
def test_device_whose_use_is_not_known_is_waited_for(halves: World, restarted: bool) -> None:
    pod = halves.bind(SLICE)
    halves.pods[pod]["status"] = started()
    halves.kubelet.known.add(pod)  # which it lists without a device
    hold_off(halves)
    if restarted:
        halves.restart()
    halves.settle()
    assert released(halves) == ("False", "UseUnknown")
    assert halves.condition("DriverReleased")["message"].count(f"pod {pod[0]}/{pod[1]} requests 1") == 1
    halves.forget(pod)
    del halves.pods[pod]
    halves.settle()
    for _ in range(100):
        halves.run(1.0)
    assert released(halves) == ("True", "DriverClosed")


@pytest.mark.parametrize("restarted", [False, True], ids=["the same agent", "an agent that never had the driver open"])
def test_pod_that_was_deleted_by_force_ends_while_the_driver_is_closed(halves: World, restarted: bool) -> None:
    pod = halves.pod(SLICE)
    halves.settle()
    hold_off(halves)
    halves.settle()
    if restarted:
        halves.restart()
    halves.force_delete(pod, seen_by_driver=False)
    halves.settle()
    halves.wait(3600)
    assert released(halves) == ("False", "WaitingForRelease")

    halves.end_container(pod)
    halves.wait(31)
    assert released(halves) == ("True", "DriverClosed")


@pytest.mark.parametrize("holder", ["lives", "deleted by force"])
@pytest.mark.parametrize("closed", ["before", "after"])
def test_driver_is_not_released_while_every_record_of_holders_is_lost(halves: World, closed: str, holder: str) -> None:
    """A reset of the GPU ends what runs on it."""
    pod = halves.pod(SLICE)
    halves.settle()
    halves.detach(pod)
    if holder == "deleted by force":
        halves.force_delete(pod)
    if closed == "before":
        hold_off(halves)
        halves.settle()
    shutil.rmtree(halves.state.root)
    halves.state.plugin.directory.mkdir(parents=True)
    halves.plugin.restart()
    halves.kubelet.lose_checkpoint()
    hold_off(halves)
    halves.restart()
    halves.settle()
    halves.wait(3600)
    assert released(halves) == ("False", "UseUnknown")

    halves.end_container(pod)
    if holder == "lives":
        halves.finish(pod)
    halves.wait(31)
    assert released(halves) == ("True", "DriverClosed")


@pytest.mark.parametrize("hidden", ["no host PIDs", "processes that cannot be read"])
def test_what_is_not_seen_is_not_said_to_have_the_driver_closed(halves: World, hidden: str) -> None:
    halves.kubelet.same_processes = hidden != "no host PIDs"
    if hidden == "processes that cannot be read":
        process = proc_of(halves.machine) / "4711"
        process.mkdir(parents=True)
        (process / "cgroup").touch()
        (process / "stat").write_text("garbage")
    hold_off(halves)
    halves.settle()
    assert released(halves) == ("True", "DriverClosed")
    message = halves.condition("DriverReleased")["message"]
    assert "Whether another program has it open is not known: the " in message
    assert "No other program" not in message


def test_two_holds_end_one_after_the_other(halves: World) -> None:
    """A person's, and that of the GPU Operator's upgrade."""
    hold_off(halves)
    halves.settle()
    halves.node["metadata"]["labels"][UPGRADE_STATE] = UNLOADING
    halves.settle(3)
    assert released(halves) == ("True", "DriverClosed")
    del halves.node["metadata"]["labels"][LABEL_DRIVER]
    halves.settle(3)
    assert released(halves) == ("True", "DriverUpgrade")
    assert not clients.any_open(halves.machine)
    hold_off(halves)
    halves.settle(3)
    assert released(halves) == ("True", "DriverClosed")
    hold_off(halves, None)
    halves.settle()
    assert halves.advertised() == {SLICE: 2}


@pytest.mark.parametrize("passes", points(range(6), each=3))
def test_label_that_goes_and_comes_back_at_once_is_a_hold_like_any_other(halves: World, passes: int) -> None:
    hold_off(halves)
    halves.settle()
    hold_off(halves, None)
    for _ in range(passes):
        halves.run()
    pod = halves.pod(SLICE) if halves.advertised() else None
    hold_off(halves)
    halves.pass_only()
    if pod is not None:
        assert released(halves)[0] == "False"
        halves.settle()
        assert released(halves) == ("False", "WaitingForRelease")
        halves.finish(pod)
    halves.settle()
    assert released(halves) == ("True", "DriverClosed")
    assert not clients.any_open(halves.machine)


@pytest.mark.parametrize("by", ["a hold", *thorough("its end")])
def test_restart_after_any_effect_of_a_hold_ends_the_same(make_world: MakeWorld, by: str) -> None:
    def story(kill_after: int) -> World:
        world = make_world((T4, {}), (H100, {"mig_enabled": True}))
        world.apply(mps(0, 4, 4), mig(1, ("3g.40gb", 0), ("3g.40gb", 4)))
        world.settle()
        if by == "its end":
            hold_off(world)
            world.settle()
        world.effect.done.clear()
        world.effect.kill_after = kill_after
        hold_off(world, None if by == "its end" else CLOSED)
        for _ in range(24):
            world.settle(1)
            found = [c["status"] for c in world.status()["conditions"] if c["type"] == "DriverReleased"]
            assert not (clients.any_open(world.machine) and found == ["True"]), "who reads that acts on it"
        return world

    def ending(world: World) -> tuple[object, ...]:
        return released(world), world.advertised(), world.tainted(), clients.any_open(world.machine)

    unharmed = story(-1)
    for kill_after in range(1, len(unharmed.effect.done) + 1):
        assert ending(story(kill_after)) == ending(unharmed), unharmed.effect.done[:kill_after]


# Who reads DriverReleased=True acts on it: the agent opens no driver while the API may say so.


@pytest.mark.parametrize("said", ["True", "False"])
@pytest.mark.parametrize("restarted", [False, True], ids=["the same agent", "a restarted one"])
def test_driver_is_opened_only_once_the_status_does_not_say_released(halves: World, restarted: bool, said: str) -> None:
    """Nor may it yet: an agent that was killed may have sent True last, which any later status keeps out."""
    if said == "False":
        halves.pod(SLICE)
    hold_off(halves)
    halves.settle()
    assert released(halves)[0] == said
    halves.status_refused = "the API server is away"
    hold_off(halves, None)
    if restarted:
        halves.restart()
    for _ in range(20):
        halves.run(30.0)
        assert not clients.any_open(halves.machine)
    assert halves.condition("DriverReleased")["reason"]
    assert released(halves)[0] == said
    assert halves.advertised() == {}

    halves.status_refused = ""
    assert halves.pass_only() == 0.0, "the next pass opens it"
    assert released(halves) == ("False", "")
    assert not clients.any_open(halves.machine)
    halves.settle()
    assert halves.found() == ("Ready", "Confirmed")
    assert halves.advertised() == {SLICE: 2}


def test_node_object_that_is_deleted_under_a_hold_opens_nothing(halves: World) -> None:
    """With the plan, which the garbage collector takes along."""
    hold_off(halves)
    halves.settle()
    halves.node_late = True
    halves.latest_node.on_event(None, None, None)
    halves.plan = None
    for _ in range(5):
        halves.run(30.0)
    assert not clients.any_open(halves.machine)


def test_status_of_a_plan_whose_write_was_not_answered_may_say_released(
    halves: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_off(halves)
    halves.settle()
    plan = halves.cache.plan.get()
    assert plan is not None
    unsure = replace(plan, status={**plan.status, "conditions": []}, unanswered=True)
    monkeypatch.setattr(halves.cache.plan, "get", lambda: unsure)
    halves.status_refused = "the API server is away"
    hold_off(halves, None)
    for _ in range(5):
        halves.run(30.0)
    assert not clients.any_open(halves.machine)
    monkeypatch.undo()
    halves.status_refused = ""
    halves.settle()
    assert halves.advertised() == {SLICE: 2}
