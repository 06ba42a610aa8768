"""Who starts with a device that was handed out again: earlier holders that hardly showed, and tenants who stand in."""

import pytest

from nodeagent.handover.seen_free import read_seen_free
from nodeagent.observed.pods import parse_pod
from tests.nodeagent.halves import THREE
from tests.nodeagent.items import pod_json, started
from tests.nodeagent.pods_memory import RunningIds, uid_of
from tests.nodeagent.world import World

EMPTY_SECONDS = 31.0
Key = tuple[str, str]


@pytest.fixture
def device(world: World) -> str:
    world.settle(3)
    return world.kubelet.devices[THREE][0]


def leave(world: World, key: Key) -> Key:
    """Force deletion; returns where its container is found."""
    uid = world.pods[key]["metadata"]["uid"]
    world.force_delete(key, seen_by_driver=False)
    world.running["gone", uid] = world.running.pop(key)
    return "gone", uid


def again(world: World, device: str) -> Key:
    """A pod that gets the device at once when an earlier one has finished."""
    earlier = world.pod(THREE, device=device)
    world.settle(3)
    world.finish(earlier)
    return world.pod(THREE, device=device)


def bound(world: World, resource: str, name: str) -> Key:
    """A tenant's pod that the kubelet has given nothing."""
    world.bound += 1
    key = ("tenant", name)
    world.pods[key] = pod_json(key, resource, 1, uid=uid_of(world.bound))
    return key


def bound_and_running(world: World, resource: str) -> Key:
    key = bound(world, resource, "runs")
    world.pods[key]["status"] = started()
    world.kubelet.known.add(key)
    world.running[key] = RunningIds.of(world.pods[key]["metadata"]["uid"], [], world.clock.now)
    return key


def test_a_living_pod_whose_devices_are_not_known_may_be_the_earlier_holder(world: World, device: str) -> None:
    """Its deletion is late in the watch, and its whole life was between two passes."""
    first = world.pod(THREE, device=device)
    world._feed()
    container = leave(world, first)
    second = world.pod(THREE, device=device)
    world.cache.pods.on_event(second, None, parse_pod(world.pods[second]))
    world.pods_late = True
    world.settle(3)
    world.wait(60)
    assert second in world.waiting

    world.pods_late = False
    world.settle(3)
    assert second in world.waiting
    world.end_container(container)
    world.wait(61)
    world.wait(61)
    assert world.running[second] == (device,)


def test_pods_that_come_and_go_unknown_keep_no_other_from_starting(world: World, device: str) -> None:
    second = again(world, device)
    for n in range(10):
        key = bound(world, THREE, f"p{n}")
        world._feed()
        if n % 2:
            world.run(15)
        del world.pods[key]
        world.run(15)
    assert world.running[second] == (device,)


@pytest.mark.parametrize("resource", ["cpu", "nvidia.com/mig-7g.80gb"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_process_that_stays_of_a_pod_without_a_device_keeps_no_other_from_starting(
    world: World, device: str, resource: str, restarted: bool
) -> None:
    """A kubelet admits it, and waits for a year after a force deletion, as the pod's grace period says."""
    earlier = world.pod(THREE, device=device)
    tenant = bound_and_running(world, resource)
    world.settle(3)
    world.kubelet.known.discard(tenant)
    leave(world, tenant)
    world.settle(3)
    if restarted:
        world.restart()
        world.settle(3)
    world.finish(earlier)
    second = world.pod(THREE, device=device)
    world.wait(61)
    assert world.running[second] == (device,)


def test_what_the_checkpoint_still_has_of_a_pod_that_vanished_is_remembered(world: World, device: str) -> None:
    other = world.kubelet.devices[THREE][1]
    earlier = world.pod(THREE, device=device)
    world.settle(3)
    tenant = world.pod(THREE, device=other)
    world._feed()
    line = world.kubelet.entries
    leave(world, tenant)
    world.kubelet.entries = line
    world.settle(3)
    world.finish(earlier)
    second = world.pod(THREE, device=device)
    world.kubelet.entries = tuple(entry for entry in world.kubelet.entries if other not in entry.ids)
    world.restart()
    world.wait(61)
    world.wait(61)
    assert world.running[second] == (device,)


def test_where_processes_are_not_seen_a_new_agent_waits_for_who_came_and_went_before_it(
    world: World, device: str
) -> None:
    world.kubelet.same_processes = False
    container = leave(world, world.pod(THREE, device=device))
    second = world.pod(THREE, device=device)
    world.restart()
    world.settle(3)
    world.wait(50)
    assert second in world.waiting
    world.end_container(container)
    world.wait(61)
    world.wait(1)
    assert world.running[second] == (device,)


def test_what_was_said_of_a_static_pod_does_not_hold_for_its_next_life(world: World, device: str) -> None:
    """Its UID is the hash of its file."""
    first = again(world, device)
    world.settle(3)
    said = read_seen_free(world.state.plugin).alone
    assert said is not None
    uid, _ = said[device]
    assert uid == world.pods[first]["metadata"]["uid"]
    world.finish(first)
    world.settle(3)
    second = world.pod(THREE, device=device)
    assert second in world.running
    assert read_seen_free(world.state.plugin).alone == said
    leave(world, second)
    third = world.pod(THREE, device=device)
    world.pods[third]["metadata"]["uid"] = uid
    world.start_waiting()
    assert third in world.waiting


def test_a_holder_that_the_watch_never_showed_is_known_by_its_process(world: World, device: str) -> None:
    world.pods_late = True
    first = world.pod(THREE, device=device)
    world.settle(3)
    world.wait(61)
    container = leave(world, first)
    second = world.pod(THREE, device=device)
    world.settle(3)
    assert second in world.waiting

    world.pods_late = False
    world.end_container(container)
    world.wait(61)
    world.wait(1)
    assert second in world.running
