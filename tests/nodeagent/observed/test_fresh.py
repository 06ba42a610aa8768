"""A watch that is late hides nothing for longer than one question: pods that come and go do not keep free partitions.

Every second instance is held; the other one is free, and a plan replaces it. The watch brings none of what happens.
"""

from collections.abc import Callable

import pytest

from kube import clients
from kube.budget import RequestBudget
from nodeagent.hardware.gpu_ids import KNOWN
from nodeagent.observed.fresh import caught_up, fresh_pods
from nodeagent.observed.kubelet import CheckpointEntry, Listed, NoAnswer
from nodeagent.observed.pods import NodePod, ObservedPods, parse_pod
from nodeagent.observed.usage import out_of_step
from sandbox.driver import processes
from tests.kube.fake_api import FakeApi, Reply
from tests.nodeagent.halves import THREE
from tests.nodeagent.items import Raw, mig, pod_json, started
from tests.nodeagent.pods_memory import uid_of
from tests.nodeagent.world import World

REPLACED = "3g.40gb at 0, 1g.10gb at 4"
KEPT = "3g.40gb at 0, 3g.40gb at 4"


def first_half(world: World) -> str:
    """Its device stays; the other one is to be replaced."""
    world.settle(3)
    kept = next(instance for instance in world.gpu().instances if instance.placed.start == 0)
    assert kept.uuid is not None
    return kept.uuid


def comes(world: World, device: str) -> None:
    world.pods_late = True
    world.pod(THREE, device=device)


def finishes(world: World, device: str) -> None:
    holder = world.pod(THREE, device=device)
    world.settle(3)
    world.pods_late = True
    world.finish(holder)


def finishes_and_is_deleted(world: World, device: str) -> None:
    finishes(world, device)
    world.pods.clear()


CASES = [comes, finishes, finishes_and_is_deleted]


@pytest.mark.parametrize("happens", CASES)
def test_what_a_late_watch_does_not_show_keeps_no_free_partition(
    world: World, happens: Callable[[World, str], None]
) -> None:
    happens(world, first_half(world))
    world.apply(mig(0, ("3g.40gb", 0), ("1g.10gb", 4)))
    world.settle()

    assert world.layout() == REPLACED


@pytest.mark.parametrize("happens", CASES)
def test_without_an_answer_of_the_api_server_it_does(world: World, happens: Callable[[World, str], None]) -> None:
    happens(world, first_half(world))
    world.api_refuses = "503"
    world.apply(mig(0, ("3g.40gb", 0), ("1g.10gb", 4)))
    world.settle()

    assert world.layout() == KEPT


def test_a_pod_that_may_hold_more_than_the_kubelet_lists_keeps_all_of_the_kind(world: World) -> None:
    comes(world, first_half(world))
    (raw,) = world.pods.values()
    one = {"limits": {THREE: "1"}, "requests": {THREE: "1"}}
    raw["spec"]["initContainers"] = [{"name": f"init-{n}", "resources": one} for n in range(2)]
    raw["spec"]["initContainers"][0]["resources"] = {"limits": {THREE: "2"}, "requests": {THREE: "2"}}
    world.apply(mig(0, ("3g.40gb", 0), ("1g.10gb", 4)))
    world.settle()

    assert world.layout() == KEPT
    assert "init containers" in world.gpu_status()["message"]


def test_a_pod_that_the_api_server_does_not_have_is_asked_for_now_and_then(world: World) -> None:
    """A static pod whose mirror is refused: on each node of a cluster, until a policy allows it."""
    asked: list[float] = []
    answer = world.fresh_pods

    def fresh() -> tuple[NodePod, ...] | NoAnswer:
        asked.append(world.clock.now)
        return answer()

    world.fresh_pods = fresh  # type: ignore[method-assign]
    world.restart()
    comes(world, first_half(world))
    (raw,) = world.pods.values()
    world.pods.clear()
    world.apply(mig(0, ("3g.40gb", 0), ("1g.10gb", 4)))
    for _ in range(90):
        world.run(1.0)
    assert world.layout() == KEPT
    assert 2 <= len(asked) <= 4

    world.pods["default", "p1"] = raw
    world.wait(31)
    assert world.layout() == REPLACED


def test_the_pod_itself_keeps_what_it_holds(world: World) -> None:
    device = first_half(world)
    comes(world, device)
    world.apply(mig(0, ("7g.80gb", 0)))
    world.settle()

    assert device in {instance.uuid for instance in world.gpu().instances}


def test_one_that_is_gone_and_was_not_seen_to_end_keeps_what_it_held(world: World) -> None:
    device = first_half(world)
    holder = world.pod(THREE, device=device)
    world.settle(3)
    world.pods_late = True
    world.force_delete(holder, seen_by_driver=False)
    world.apply(mig(0, ("1g.10gb", 0), ("1g.10gb", 4)))
    world.settle()

    assert world.layout() == "3g.40gb at 0, 1g.10gb at 4"


@pytest.mark.parametrize("api", ["answers", "has it no more", "has it as finished", "does not answer"])
def test_a_new_pod_that_the_watch_has_not_brought_is_not_one_that_is_gone(world: World, api: str) -> None:
    """The kubelet's checkpoint has it, and its sandbox has a process: none of its containers may wait for itself."""
    device = first_half(world)
    comes(world, device)
    (key,) = world.pods
    if api == "has it no more":
        world.pods.clear()
    if api == "has it as finished":
        world.pods[key]["status"] = started("Failed")
    world.api_refuses = "503" if api == "does not answer" else ""
    world.settle(4)

    assert (device in world.plugin.config.occupied) is (api != "answers")
    world.api_refuses, world.pods_late = "", False
    if api == "does not answer":
        world.settle(4)
        assert device not in world.plugin.config.occupied


@pytest.mark.parametrize("left", [False, True])
def test_a_new_pod_waits_no_longer_than_the_api_server_is_silent(world: World, left: bool) -> None:
    """That is back before the watch. What a process of an earlier pod is left on stays so."""
    device = first_half(world)
    if left:
        world.tree.start(4711, uid_of(98))
        world.kubelet.entries += (CheckpointEntry(pod_uid=uid_of(98), ids=(device,)),)
    entries = world.kubelet.entries
    world.api_refuses = "503"
    comes(world, device)
    world.kubelet.entries += entries
    world.settle(4)
    assert device in world.plugin.config.occupied
    world.api_refuses = ""
    world.settle(4)

    assert (device in world.plugin.config.occupied) is left


def test_a_late_watch_makes_no_holder_of_what_is_gone_of_a_pod_that_has_ended(world: World) -> None:
    """It shows the pod as running when that is deleted at the API server, and the checkpoint still has its line."""
    first_half(world)
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle()
    device = next(i.uuid for i in world.gpu().instances if i.placed.start == 4)
    world.pods_late = True
    key = world.pod(THREE, device=device or "")
    running = dict(world.pods[key], status=started())
    world.finish(key)
    world.pods.clear()
    world.apply(mig(0, ("3g.40gb", 0), ("1g.10gb", 4)))
    world.wait(40, times=4)
    assert world.layout() == REPLACED
    world.cache.pods.on_event(key, None, parse_pod(running))
    world.settle(4)

    assert "delete the pod" not in world.gpu_status().get("message", "")


def test_nothing_is_destroyed_by_an_earlier_reading_of_the_gpu(world: World) -> None:
    """It was kept while the API server did not answer, and a process has come since then."""
    device = first_half(world)
    other = next(instance.uuid for instance in world.gpu().instances if instance.uuid not in (None, device))
    comes(world, device)
    world.apply(mig(0, ("3g.40gb", 0), ("1g.10gb", 4)))
    while other not in world.plugin.config.withdrawn:
        world.run()
    world.api_refuses = "503"
    for _ in range(40):
        world.run()
    processes.attach(world.machine, str(other), 77, 1)
    world.api_refuses = ""
    world.run()

    assert world.layout() == KEPT
    assert "destroying" not in world.gpu_status()["message"]


def test_a_pod_that_is_not_understood_hides_no_other_and_shows_none() -> None:
    raw = pod_json(("default", "p1"), THREE, 1, uid=uid_of(1))
    odd: Raw = {"metadata": {"namespace": "default", "name": "p2", "uid": uid_of(2), "labels": ["x"]}, "spec": {}}
    api = FakeApi(lambda _: Reply({"items": [raw, odd]}))
    try:
        client = clients.for_url(api.url)
        found = fresh_pods(client, "n1", RequestBudget(), KNOWN)
    finally:
        api.stop()
    assert not isinstance(found, NoAnswer)
    assert [pod.uid for pod in found] == [uid_of(1), uid_of(2)]

    caught = caught_up(ObservedPods(synced=True), found)
    listed = Listed(pods={("default", "p1"): {}, ("default", "p2"): {}})
    assert "default/p2" in out_of_step(caught, listed)
