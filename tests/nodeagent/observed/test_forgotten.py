"""A kubelet that has lost its record of a running pod takes its device for free: no further pod may get it."""

import pytest

from tests.drawn import thorough
from tests.nodeagent.conftest import MakeWorld, plain
from tests.nodeagent.halves import THREE, replace_both
from tests.nodeagent.items import Raw, mig, mps, whole
from tests.nodeagent.world import World

Key = tuple[str, str]


def lose_record(world: World, key: Key) -> None:
    """As after the checkpoint was lost, or a phase that was patched and set back: listed, and without devices."""
    world.kubelet.held[key] = {}
    world.kubelet.entries = ()


@pytest.mark.parametrize("in_the_way", ["the taint is refused", "the Node was not read", "the plugin is late"])
def test_what_is_held_waits_for_no_courtesy(world: World, in_the_way: str) -> None:
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    found = world.pod(THREE)
    world.settle()
    if in_the_way == "the taint is refused":
        world.taint_refused = "403"
    elif in_the_way == "the Node was not read":
        world.node_late = True
        world.restart()
    else:
        world.plugin.mute = True
        place = next(i.placed.start for i in world.gpu().instances if i.uuid in world.running[found])
        world.apply(mig(0, ("3g.40gb", place)))  # withdraws the other half, which is free
        world.run()
    lose_record(world, found)
    world.settle(12)

    (device,) = world.running[found]
    assert device not in world.kubelet.devices[THREE]
    assert device not in world.running.get(world.pod(THREE), ())


def test_a_device_that_two_pods_hold_is_stalled_and_each_hears_of_itself_only(world: World) -> None:
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    first = world.pod(THREE, "ours")
    world.settle()
    lose_record(world, first)
    (device,) = world.running[first]
    second = world.pod(THREE, "theirs", device=device)  # before the agent has noticed
    assert world.waiting[second] == (device,)

    world.settle(20)
    assert second in world.waiting
    assert world.metrics.registry.get_sample_value("gpuplan_agent_devices_held_twice") == 1.0
    assert "HeldTwice" not in [world.condition(kind)["reason"] for kind in ("Ready", "Stalled")]
    for _ in range(60):
        world.run()
    for kind, status in (("Ready", "False"), ("Stalled", "True")):
        found = world.condition(kind)
        assert (found["status"], found["reason"]) == (status, "HeldTwice")
        assert f"pods default/ours and default/theirs both hold {device}" in found["message"]
    events = {name: message for name, reason, message in world.events if reason == "HeldTwice"}
    assert events.keys() == {"ours", "theirs"}
    assert ("theirs" in events["ours"], "default/ours" in events["theirs"]) == (False, False)

    world.finish(second)
    world.settle()
    assert world.running == {first: (device,)}
    assert world.metrics.registry.get_sample_value("gpuplan_agent_devices_held_twice") == 0.0
    assert world.condition("Stalled")["reason"] != "HeldTwice"


@pytest.fixture
def holder(world: World) -> Key:
    """A pod that holds one of two planned halves, unknown to the kubelet."""
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    found = world.pod(THREE)
    world.settle()
    assert world.found() == ("Ready", "Confirmed")
    lose_record(world, found)
    world.settle()
    return found


def assert_withheld(world: World, holder: Key) -> None:
    (device,) = world.running[holder]
    assert device not in world.kubelet.devices[THREE]
    assert world.found() == ("WaitingForRelease", "WaitingForRelease")
    assert "is held by pod default/p1, of which the kubelet has lost its record" in world.gpu_status()["message"]
    assert world.condition("Drifted")["status"] == "False"


def test_no_further_pod_gets_the_device_and_the_plan_names_its_holder(world: World, holder: Key) -> None:
    assert_withheld(world, holder)
    second, third = world.pod(THREE), world.pod(THREE)

    assert not set(world.running[holder]) & set(world.running[second])
    assert third not in world.running


@pytest.mark.parametrize("event", ["agent starts", "kubelet does not answer", "kubelet starts"])
def test_it_stays_withheld(world: World, holder: Key, event: str) -> None:
    if event == "agent starts":
        world.restart()
    elif event == "kubelet does not answer":
        world.kubelet.refuses = "RESOURCE_EXHAUSTED"
    else:
        world.kubelet.known.clear()
        world.kubelet.age_seconds = 1.0
    advertised = []
    for _ in range(8):
        world.run()
        advertised.append(world.advertised())
    world.kubelet.refuses, world.kubelet.age_seconds = "", 3600.0
    world.kubelet.known.add(holder)
    world.settle()

    assert advertised == [{THREE: 1}] * 8
    assert_withheld(world, holder)


def test_it_is_advertised_again_when_its_pod_has_ended(world: World, holder: Key) -> None:
    world.finish(holder)
    world.settle()

    assert world.advertised() == {THREE: 2}
    assert world.found() == ("Ready", "Confirmed")


def test_a_force_deleted_holder_keeps_it_for_as_long_as_it_runs(world: World, holder: Key) -> None:
    world.force_delete(holder, seen_by_driver=False)
    world.settle(20)
    assert world.advertised() == {THREE: 1}

    world.end_container(holder)
    world.wait(31)
    assert world.advertised() == {THREE: 2}


def test_it_is_kept_where_the_plan_no_longer_has_it(world: World, holder: Key) -> None:
    replace_both(world)
    world.settle()

    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"
    world.finish(holder)
    world.settle()
    assert world.layout() == "7g.80gb at 0"


@pytest.mark.parametrize(
    ("item", "resource", "left"),
    [(mps(0, 10, 10), "nvidia.com/gpu-10gb", 1), (whole(0), "nvidia.com/gpu", 0)],
)
def test_slices_and_whole_gpus_too(make_world: MakeWorld, item: Raw, resource: str, left: int) -> None:
    world = make_world(plain())
    world.apply(item)
    world.settle()
    pod = world.pod(resource)
    world.settle()

    lose_record(world, pod)
    world.settle()

    assert world.advertised().get(resource, 0) == left
    assert world.condition("Drifted")["status"] == "False"
    world.finish(pod)
    world.settle()
    assert world.advertised()[resource] == left + 1


def test_an_allocate_in_flight_withdraws_nothing(world: World) -> None:
    """The watch of pods is late, and a new pod of the same name is listed before its device is."""
    first = world.pod(THREE, "web-0")
    world.settle()
    world.kubelet.held[first] = {}
    done = len(world.effect.done)

    world.run()
    world.run()

    assert "config.json" not in world.effect.done[done:]
    assert world.advertised() == {THREE: 2}


def test_marks_that_were_lost_are_written_again(world: World) -> None:
    """Without them what is free is in doubt for as long as the agent believes that they are there."""
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    key = world.pod(THREE)
    world.settle()
    world.finish(key)
    world.settle()
    world.state.plugin.seen_free.unlink()
    world.kubelet.lose_checkpoint()
    assert len(world.kubelet.devices[THREE]) == 1

    world.settle()

    assert len(world.kubelet.devices[THREE]) == 2


@pytest.mark.parametrize("processes", ["hidden", *thorough("seen")])
def test_a_pod_that_a_cut_off_kubelet_still_lists_has_not_ended(world: World, holder: Key, processes: str) -> None:
    """It is deleted by force, and its kubelet, which has lost its record too, does not hear of it."""
    world.kubelet.same_processes = processes == "seen"
    (device,) = world.running[holder]
    del world.pods[holder]
    world.run()
    for _ in range(12):
        world.wait(30)
        assert device not in world.kubelet.devices[THREE]

    world.end_container(holder)
    world.forget(holder)
    world.wait(30, times=4)
    assert device in world.kubelet.devices[THREE]
