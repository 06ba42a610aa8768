"""Pods on the node of one that was deleted by force, and whose process hangs: what is theirs does not wait for it."""

import pytest

from nodeagent.observed.kubelet import CheckpointEntry
from tests.nodeagent.conftest import MakeWorld, cut
from tests.nodeagent.halves import THREE, replace_with_its_device
from tests.nodeagent.items import mig, started
from tests.nodeagent.world import World

TWO = "nvidia.com/mig-2g.20gb"


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """A pod has one of three thirds."""
    world = make_world(cut(("2g.20gb", 0), ("2g.20gb", 2), ("2g.20gb", 4)))
    world.settle(4)
    world.apply(mig(0, ("2g.20gb", 0), ("2g.20gb", 2), ("2g.20gb", 4)))
    world.settle()
    world.pod(TWO, "web-0")
    world.settle(3)
    return world


def orphan(world: World) -> None:
    key = ("default", "web-0")
    world.running["gone", "web-0"] = world.running.pop(key)
    world.force_delete(key, seen_by_driver=False)


def another(world: World) -> str:
    used = {i for ids in world.running.values() for i in ids}
    return next(i for i in world.kubelet.devices[TWO] if i not in used)


def pulls_its_image(world: World, name: str, device: str) -> tuple[str, str]:
    """A pod that was admitted with it, for whose container the kubelet asks later."""
    key = world.bind(TWO, name)
    assert world.plugin.allocate(device, TWO, world.clock.now)
    world.kubelet.known.add(key)
    world.kubelet.held[key] = {"main": {TWO: (device,)}}
    world.kubelet.entries += (CheckpointEntry(pod_uid=world.pods[key]["metadata"]["uid"], ids=(device,)),)
    world.pods[key]["status"] = {**started("Pending"), "containerStatuses": [{"state": {"waiting": {}}}]}
    return key


def starts(world: World, key: tuple[str, str], device: str) -> bool:
    world.settle(3)
    world.waiting[key] = (device,)
    world.wait(61)
    world.wait(61)
    return key in world.running


def is_offered(world: World, device: str) -> bool:
    for _ in range(4):
        world.wait(61)
    return device in world.plugin.advertised()[TWO]


@pytest.mark.parametrize("ends", [True, False])
def test_the_next_one_of_its_name_in_a_late_watch(world: World, ends: bool) -> None:
    world.wait(100)
    device = another(world)
    world.pods_late = True
    orphan(world)
    key = world.pod(TWO, "web-0", device=device) if ends else pulls_its_image(world, "web-0", device)
    world.run(5)
    world.run(1)
    world.pods_late = False
    if ends:
        world.settle(3)
        world.finish(key)
        del world.pods[key]
        assert is_offered(world, device)
    else:
        assert starts(world, key, device)


@pytest.mark.parametrize("comes", [True, False])
def test_what_was_handed_out_twice_in_a_moment(world: World, comes: bool) -> None:
    """The first time for a pod that another plugin refused."""
    orphan(world)
    world.wait(3600)
    device = another(world)
    world.plugin.allocate(device, TWO, world.clock.now)
    world.run(1)
    if comes:
        assert starts(world, pulls_its_image(world, "new", device), device)
    else:
        world.plugin.allocate(device, TWO, world.clock.now)
        assert is_offered(world, device)


def test_the_next_one_of_a_job_that_no_pass_saw(world: World) -> None:
    orphan(world)
    world.wait(61)
    device = another(world)
    job = world.pod(TWO, "job-0", device=device)
    world.finish(job)
    del world.pods[job]
    job = world.pod(TWO, "job-1", device=device)
    world.wait(61)
    world.wait(61)
    assert job in world.running


@pytest.mark.parametrize("listed_late", [True, False])
def test_the_next_one_of_a_job_that_is_older_than_the_orphan(make_world: MakeWorld, listed_late: bool) -> None:
    world = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle(4)
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle()
    first = world.pod(THREE, "job-0")
    world.wait(61)
    world.pod(THREE, "web-0")
    world.wait(61)
    orphan(world)
    world.wait(61)
    replace_with_its_device(world, first, listed_late=listed_late)


def test_an_allocate_that_came_to_nothing_before_the_agent_restarted(world: World) -> None:
    orphan(world)
    world.wait(3600)
    device = another(world)
    world.plugin.allocate(device, TWO, world.clock.now)
    world.run(10)
    world.restart()
    assert is_offered(world, device)


@pytest.mark.parametrize("restarted", [True, False])
def test_a_pod_that_comes_while_the_kubelet_does_not_answer(world: World, restarted: bool) -> None:
    world.wait(100)
    device = another(world)
    if restarted:
        orphan(world)
        world.wait(61)
        world.restart()
    world.kubelet.refuses = "no answer"
    key = pulls_its_image(world, "new", device)
    world.run(3)
    if not restarted:
        orphan(world)
        world.run(3)
    world.run(1)
    world.kubelet.refuses = ""
    assert starts(world, key, device)


def test_what_was_handed_out_before_the_other_one_began(world: World) -> None:
    world.end_container(("default", "web-0"))
    world.force_delete(("default", "web-0"))
    world.wait(61)
    device, held = another(world), world.kubelet.held
    key = pulls_its_image(world, "new", device)
    world.clock.now += 1.0
    world.pod(TWO, "web-0")
    ids = held.pop(key)
    world.pass_only()
    held[key] = ids
    orphan(world)
    assert starts(world, key, device)


def test_a_device_of_an_init_container(world: World) -> None:
    """The kubelet never lists it; its checkpoint has it."""
    world.wait(100)
    device = another(world)
    key = pulls_its_image(world, "new", device)
    main = world.pods[key]["spec"]["containers"][0]
    world.pods[key]["spec"]["initContainers"] = [{"name": "init", "resources": main.pop("resources")}]
    world.kubelet.held[key] = {}
    world.run(5)
    orphan(world)
    world.settle(8)
    world.kubelet.held[key] = {"main": {TWO: ()}}
    assert starts(world, key, device)
