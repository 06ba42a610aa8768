"""Partitions that the plan drains: who holds one keeps it, no new pod gets one, and they are no broken ones."""

import pytest

from nodeagent.observed.kubelet import CheckpointEntry
from tests.drawn import thorough
from tests.nodeagent.conftest import MakeWorld, cut
from tests.nodeagent.halves import THREE
from tests.nodeagent.items import Raw, mig
from tests.nodeagent.world import World

HALVES = mig(0, ("3g.40gb", 0), ("3g.40gb", 4))


def drained(world: World, *starts: int, item: Raw = HALVES) -> Raw:
    ids = [one.uuid for one in world.gpu().instances if one.placed.start in starts]
    return {**item, "drain": {"pod": "team/large", "uid": "uid-large", "partitions": ids}}


def counts(world: World) -> tuple[str, str]:
    """Capacity and allocatable of the Node."""
    status = world.node["status"]
    return status["capacity"][THREE], status["allocatable"][THREE]


def draining(world: World) -> tuple[tuple[str, str], tuple[str, str]]:
    """With both halves held and drained: the two holders."""
    keys = world.pod(THREE), world.pod(THREE)
    world.apply(planned=[HALVES])
    world.settle()
    before = world.gpu_status()["planHash"]
    world.apply(planned=[drained(world, 0, 4)])
    world.settle()
    assert world.gpu_status()["planHash"] == before, "what a GPU is cut into is the same"
    return keys


def test_a_holder_keeps_its_partition_and_no_new_pod_gets_it_afterwards(world: World) -> None:
    first, second = draining(world)
    assert counts(world) == ("2", "0")
    assert set(world.running) == {first, second}

    world.finish(first)
    world.settle()

    assert counts(world) == ("2", "0")
    assert sorted(world.partitions()) == ["mig-3g.40gb Free", "mig-3g.40gb Used"]
    assert world.pods[world.pod(THREE)]["status"]["phase"] == "Failed"


def test_a_drained_gpu_is_well(world: World) -> None:
    draining(world)

    assert world.found() == ("Ready", "Confirmed")
    assert world.condition("GPUsHealthy")["status"] == "True"
    assert world.condition("Advertised")["status"] == "True"
    assert not world.tainted()


def test_the_gpu_is_cut_again_once_the_last_holder_has_ended(world: World) -> None:
    for key in draining(world):
        world.finish(key)
    world.settle()
    world.apply(planned=[mig(0, ("7g.80gb", 0))])
    world.settle()

    assert world.layout() == "7g.80gb at 0"
    assert world.advertised()["nvidia.com/mig-7g.80gb"] == 1


def test_a_drain_that_ends_gives_them_back(world: World) -> None:
    draining(world)
    world.apply(planned=[HALVES])
    world.settle()

    assert counts(world) == ("2", "2")


def test_a_new_agent_drains_on_and_takes_no_gpu_for_broken(world: World) -> None:
    draining(world)
    world.restart()
    world.settle()

    assert counts(world) == ("2", "0")
    assert world.found() == ("Ready", "Confirmed")
    assert world.plugin.config.unhealthy == ()


def test_nothing_is_drained_where_people_decide(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle(4)
    for pinned, paused in (([drained(world, 0)], False), ([], True)):
        world.apply(*pinned, planned=[drained(world, 0)], paused=paused)
        world.settle()
        assert counts(world) == ("2", "2")
    world.apply(planned=[drained(world, 0)])
    assert world.plan is not None
    world.plan["spec"]["mode"] = "Manual"
    world.settle()
    assert counts(world) == ("2", "2")


def test_for_a_new_kubelet_they_are_drained_once_what_it_lists_is_believed(world: World) -> None:
    """Its pods are admitted again at its start, which fails for one whose device is Unhealthy and does not run."""
    draining(world)
    world.plugin.socket, world.plugin.admitting, world.kubelet.age_seconds = (2, 2), True, 0.0
    world.kubelet.step()
    world.settle()
    assert counts(world) == ("2", "2")

    world.kubelet.age_seconds, known = 3600.0, set(world.kubelet.known)
    world.kubelet.known.clear()  # it does not reach the API server yet
    world.settle()
    assert counts(world) == ("2", "2")

    world.kubelet.known |= known
    world.settle()
    assert counts(world) == ("2", "0")


@pytest.mark.parametrize("believed", [True, *thorough(False)])
def test_a_kubelet_that_admits_its_pods_for_long_is_no_other_device_plugin(world: World, believed: bool) -> None:
    """It shows what is drained, for its plugin lists that as healthy."""
    holders = draining(world)
    world.plugin.socket, world.plugin.admitting = (2, 2), True
    world.kubelet.known, world.kubelet.age_seconds = set(), 3600.0 if believed else 0.0
    for _ in range(90):
        world.run(1.0)
        assert world.plugin.config.withdrawn == ()
    assert counts(world) == ("2", "2")
    assert world.condition("Advertised")["status"] == "True"

    world.kubelet.known, world.kubelet.age_seconds = set(holders), 3600.0
    world.settle()
    assert counts(world) == ("2", "0")


def test_a_device_of_an_init_container_is_in_no_list_of_a_kubelet_that_has_admitted_its_pod(world: World) -> None:
    key, other = draining(world)
    world.finish(other)
    (device,) = world.running[key]
    (second,) = {i.uuid for i in world.gpu().instances} - {device}
    two = {"limits": {THREE: "2"}, "requests": {THREE: "2"}}
    world.pods[key]["spec"]["initContainers"] = [{"name": "init", "resources": two}]
    world.kubelet.entries += (CheckpointEntry(pod_uid=world.pods[key]["metadata"]["uid"], ids=(str(second),)),)
    world.plugin.socket, world.plugin.admitting = (2, 2), True
    world.settle()

    assert counts(world) == ("2", "0")
