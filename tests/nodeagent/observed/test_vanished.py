"""Pods that vanished: whose devices are known, and whose are not."""

import pytest

from tests.drawn import cells, thorough
from tests.nodeagent.conftest import MakeWorld, cut
from tests.nodeagent.halves import THREE, replace_both
from tests.nodeagent.items import mig, pod_json
from tests.nodeagent.pods_memory import uid_of
from tests.nodeagent.world import World


def test_a_new_pod_of_the_same_name_is_not_the_one_that_vanished(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle(4)
    first = world.pod(THREE, "web-0")
    world.pods[first]["spec"]["terminationGracePeriodSeconds"] = 600
    world.forget(first)
    world.run()
    still_running = world.running[first]
    world.force_delete(first, seen_by_driver=False)
    world.run()
    world.running[("default", "killed slowly")] = still_running
    world.pod(THREE, "web-0", device=next(i for i in world.kubelet.devices[THREE] if i not in still_running))
    world.run()
    world.apply(mig(0, ("7g.80gb", 0)))

    world.settle(5)
    world.clock.now += 90  # the ledger's doubt is over
    world.settle(5)

    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"
    assert "is left of pod default/web-0" in world.gpu_status()["message"]


@pytest.mark.parametrize("late_passes", [1, *thorough(0, 3)])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_pod_that_is_replaced_before_the_watch_shows_it_keeps_its_device(
    world: World, late_passes: int, restarted: bool
) -> None:
    key = world.pod(THREE, "web-0")
    world.pods[key]["spec"]["terminationGracePeriodSeconds"] = 600
    world.run()
    (device,) = world.running[key]
    world.pods_late = late_passes > 0
    first = world.recreate(key)
    assert world.running[key] != world.running[first]
    for _ in range(late_passes):
        world.run()
    world.pods_late = False
    if restarted:
        world.restart()
    world.run()
    world.finish(key)
    replace_both(world)

    world.settle()
    world.clock.now += 600
    world.settle()
    assert device in {instance.uuid for instance in world.gpu().instances}
    assert "web-0" in world.gpu_status()["message"]

    world.end_container(first)
    world.wait(61)
    assert world.layout() == "7g.80gb at 0"


@pytest.mark.parametrize(("starts", "checkpoint"), cells([True, False], [True, False]))
def test_a_pod_that_is_replaced_keeps_its_device_while_the_watch_stands_still(
    world: World, monkeypatch: pytest.MonkeyPatch, starts: bool, checkpoint: bool
) -> None:
    """By the watch the first pod lives, and by the List it has the second one's device: its process seems its own."""
    key = world.pod(THREE, "web-0")
    world.settle(3)
    (device,) = world.running[key]
    world.pods_late = True
    if not starts:
        monkeypatch.setattr(world.plugin, "starts", lambda *_: False)
    first = world.recreate(key)
    if not checkpoint:
        world.kubelet.entries = ()
    replace_both(world)

    for _ in range(5):
        world.wait(61)
        assert device in {instance.uuid for instance in world.gpu().instances}
    world.pods_late = False
    world.settle()
    assert "is left of pod default/web-0" in world.gpu_status()["message"]

    world.end_container(first)
    world.wait(61)
    world.settle()
    assert device not in {instance.uuid for instance in world.gpu().instances}


@pytest.mark.parametrize("ends", [True, False])
def test_a_third_pod_of_the_name_waits_for_the_end_of_the_first_whose_device_it_got(world: World, ends: bool) -> None:
    """By the List the name has the first one's device again; the watch brings neither of the earlier ones' ends."""
    key = world.pod(THREE, "web-0")
    world.settle(3)
    (device,) = world.running[key]
    world.pods_late = True
    first = world.recreate(key)
    world.settle(3)
    second = world.recreate(key)
    if ends:
        world.end_container(second)
    world.settle(3)
    world.pods_late = False
    assert world.waiting[key] == (device,)

    for _ in range(3):
        world.wait(61)  # each step asserts that no two containers have one device
    assert world.waiting[key] == (device,)
    world.end_container(first)
    world.wait(61)
    world.settle()
    assert world.running[key] == (device,)


@pytest.mark.parametrize("checkpoint", [True, False])
@pytest.mark.parametrize("third", [True, *thorough(False)])
def test_a_pod_keeps_its_device_of_which_the_watch_brought_neither_begin_nor_end(
    world: World, checkpoint: bool, third: bool
) -> None:
    """The List showed its device with the name alone, which by the watch was the first one's."""
    key = world.pod(THREE, "web-0")
    world.settle(3)
    world.pods_late = True
    first = world.recreate(key)
    (device,) = world.running[key]
    if not checkpoint:
        world.kubelet.entries = ()
    world.settle(3)
    world.end_container(first)
    second = world.recreate(key)
    if not third:
        world.force_delete(key)
    world.settle(3)
    world.pods_late = False
    replace_both(world)

    for _ in range(3):
        world.wait(61)
        assert device in {instance.uuid for instance in world.gpu().instances}
    world.end_container(second)
    world.wait(61)
    world.settle()
    assert device not in {instance.uuid for instance in world.gpu().instances}


def test_a_device_that_a_new_pod_is_listed_with_too_early_is_free_after_grace_and_slack(world: World) -> None:
    """The watch ahead of List: what the earlier pod of this name held passes for the new one's for a moment."""
    key = world.pod(THREE, "web-0")
    world.run()
    earlier = world.kubelet.held[key]
    later = {"main": {THREE: tuple(i for i in world.kubelet.devices[THREE] if i not in world.running[key])}}
    world.finish(key)
    world.run()
    world.pods[key] = pod_json(key, THREE, 1, uid="second")
    world.kubelet.known.add(key)
    world.kubelet.held[key] = earlier
    world.run()
    world.kubelet.held[key] = later
    world.pods[key]["status"] = {"phase": "Running", "startTime": "t"}
    world.run()
    replace_both(world)

    world.settle()
    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"
    assert "the kubelet lists a pod of this name with another device now" in world.gpu_status()["message"]
    world.clock.now += 60
    world.settle()
    assert world.layout().count("3g.40gb") == 1


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 2}', '{"version": 1, "pods": [{}]}', '{"version": 1}'])
def test_a_memory_that_cannot_be_read_is_doubted_while_an_unknown_pod_runs(world: World, text: str) -> None:
    world.state.holdings.write_text(text)
    world.restart()
    replace_both(world)

    world.tree.start(4711, uid_of(99), program="stranger")
    world.wait(3600)
    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"
    message = world.gpu_status()["message"]
    left = "process 4711 (stranger, since 1970-01-12T13:46:40Z) is left of"
    assert f"the agent lost its memory, see holdings.json.unreadable, and {left}" in message
    assert world.state.holdings.with_name("holdings.json.unreadable").read_text() == text

    world.tree.end(4711)
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_a_lost_memory_is_doubted_after_each_start_until_the_file_is_deleted(world: World) -> None:
    world.state.holdings.write_text("{")
    for kept in (True, True, False):
        if not kept:
            world.state.holdings.with_name("holdings.json.unreadable").unlink()
        world.restart()
        world.kubelet.same_processes = False
        world.settle(2)
        assert world.agent.observer.observe().usage.blind.startswith("the agent lost its memory") is kept

    world.wait(61)
    holder = world.pod(THREE)
    world.run()
    world.restart()
    assert world.pods[holder]["metadata"]["uid"] in world.state.holdings.read_text()


def test_an_allocate_to_a_pod_that_was_never_observed_is_not_its_earlier_holders(world: World) -> None:
    """The watch of pods is away while one ends and the next one gets its device and is deleted by force."""
    first = world.pod(THREE)
    world.run()
    (device,) = world.running[first]
    world.pods_late = True
    world.finish(first)
    second = world.pod(THREE, device=device)
    world.start_container(second)  # by a device plugin that does not wait for the agent
    world.run()
    world.running["default", "runs on"] = world.running.pop(second)
    world.force_delete(second, seen_by_driver=False)
    world.run()
    world.pods_late = False
    replace_both(world)

    world.settle()
    assert device in {instance.uuid for instance in world.gpu().instances}
    assert f"is held by pod UID {uid_of(2)}" in world.gpu_status()["message"]

    world.end_container(("default", "runs on"))
    world.wait(61)
    world.settle()
    assert world.found() == ("Ready", "Confirmed")


def test_a_memory_that_is_deleted_under_the_agent_is_written_again(world: World) -> None:
    holder = world.pod("nvidia.com/mig-3g.40gb")
    world.settle(4)
    text = world.state.holdings.read_text()
    assert world.pods[holder]["metadata"]["uid"] in text

    world.state.holdings.unlink()
    world.run()

    assert world.state.holdings.read_text() == text
