"""A kubelet gives a device away before the agent has seen its holder's end: no container starts until it has."""

import pytest

from nodeagent.handover.seen_free import read_seen_free
from tests.nodeagent.halves import THREE
from tests.nodeagent.pods_memory import uid_of
from tests.nodeagent.world import World

EMPTY_SECONDS = 31.0


def alone(world: World) -> dict[str, str]:
    return {i: uid for i, (uid, _) in read_seen_free(world.state.plugin).alone.items()}


@pytest.fixture
def device(world: World) -> str:
    """The agent has said something before: one of an earlier version does not, and no pod waits for it."""
    world.settle(3)
    return world.kubelet.devices[THREE][0]


def left(world: World, device: str, name: str = "") -> tuple[tuple[str, str], tuple[str, str]]:
    """Where the container of a pod that was deleted by force is found, and the pod that has its device now."""
    holder = world.pod(THREE, name, device=device)
    world.settle(3)
    world.force_delete(holder, seen_by_driver=False)
    world.running["gone", "first"] = world.running.pop(holder)
    return ("gone", "first"), world.pod(THREE, name, device=device)


def test_the_next_pod_starts_once_no_process_of_the_first_one_is_left(world: World, device: str) -> None:
    first, second = left(world, device)
    assert second in world.waiting
    world.wait(7200)
    world.wait(7200)
    assert second in world.waiting
    assert device not in alone(world)

    world.end_container(first)
    world.wait(EMPTY_SECONDS)
    world.wait(EMPTY_SECONDS)
    assert world.running[second] == (device,)
    assert alone(world) == {device: uid_of(2)}


def test_a_watch_that_is_late_does_not_take_the_next_pod_for_the_first_one_of_its_name(
    world: World, device: str
) -> None:
    holder = world.pod(THREE, "db-0", device=device)
    world.settle(3)
    world.pods_late = True
    world.force_delete(holder, seen_by_driver=False)
    world.running["gone", "first"] = world.running.pop(holder)
    second = world.pod(THREE, "db-0", device=device)
    world.settle(3)
    assert second in world.waiting
    world.pods_late = False
    world.wait(7200)
    assert second in world.waiting

    world.end_container(("gone", "first"))
    world.wait(EMPTY_SECONDS)
    world.wait(EMPTY_SECONDS)
    assert world.running[second] == (device,)


def test_the_next_pod_starts_at_once_when_the_first_one_has_finished(world: World, device: str) -> None:
    holder = world.pod(THREE, device=device)
    world.settle(3)
    world.finish(holder)
    second = world.pod(THREE, device=device)
    assert second in world.waiting
    world.run()
    assert world.running[second] == (device,)


def test_what_was_seen_free_in_between_needs_no_word_of_the_agent(world: World, device: str) -> None:
    holder = world.pod(THREE, device=device)
    world.settle(3)
    world.finish(holder)
    world.settle(3)
    assert world.pod(THREE, device=device) in world.running


@pytest.mark.parametrize("end", ["the agent", "the agent, which loses its memory"])
def test_a_restart_forgets_no_earlier_holder(world: World, device: str, end: str) -> None:
    first, second = left(world, device)
    if "memory" in end:
        world.state.holdings.unlink()
    world.restart()
    for _ in range(4):
        world.wait(100)
        assert second in world.waiting

    world.end_container(first)
    world.wait(EMPTY_SECONDS, times=3)
    assert world.running[second] == (device,)


def test_a_holder_that_came_and_went_while_no_agent_ran_is_known_by_its_process(world: World, device: str) -> None:
    holder = world.pod(THREE, device=device)
    world.force_delete(holder, seen_by_driver=False)
    world.running["gone", "first"] = world.running.pop(holder)
    second = world.pod(THREE, device=device)
    world.restart()
    for _ in range(4):
        world.wait(100)
        assert second in world.waiting

    world.end_container(("gone", "first"))
    world.wait(EMPTY_SECONDS)
    assert world.running[second] == (device,)


def test_where_processes_cannot_be_seen_the_grace_period_has_to_do(world: World, device: str) -> None:
    world.kubelet.same_processes = False
    first, second = left(world, device)
    world.end_container(first)
    world.run()
    assert second in world.waiting
    world.wait(3600)
    world.wait(3600)
    assert world.running[second] == (device,)


def test_the_record_of_a_finished_pod_that_no_agent_saw_finish_is_no_holder_for_ever(world: World, device: str) -> None:
    holder = world.pod(THREE, device=device)
    world.settle(3)
    world.finish(holder)
    del world.pods[holder]
    second = world.pod(THREE, device=device)
    world.restart()
    world.wait(EMPTY_SECONDS, times=3)
    assert world.running[second] == (device,)


def test_what_was_said_of_a_pod_stays_while_the_kubelet_does_not_answer(world: World, device: str) -> None:
    holder = world.pod(THREE, device=device)
    world.settle(3)
    world.finish(holder)
    world.pod(THREE, device=device)
    world.settle(3)
    said = alone(world)
    assert said == {device: uid_of(2)}
    world.kubelet.refuses = "no answer"
    world.restart()
    world.settle(3)
    assert alone(world) == said


@pytest.mark.parametrize("lost", ["deleted", "put back"])
def test_a_holder_that_a_lost_ledger_named_is_waited_for(world: World, device: str, lost: str) -> None:
    """No agent is needed for that: the plugin knows which ledger the agent has read."""
    other = next(i for i in world.kubelet.devices[THREE] if i != device)
    world.finish(world.pod(THREE, device=other))
    world.settle(3)
    earlier = world.state.plugin.ledger.read_bytes()
    holder = world.pod(THREE, device=device)
    world.settle(3)
    if lost == "deleted":
        world.state.plugin.ledger.unlink()
    else:
        world.state.plugin.ledger.write_bytes(earlier)
    world.settle(3)
    world.plugin.restart()
    world.settle(3)

    world.force_delete(holder, seen_by_driver=False)
    world.running["gone", "first"] = world.running.pop(holder)
    second = world.pod(THREE, device=device)
    assert second in world.waiting
    world.wait(7200)
    assert second in world.waiting
    world.end_container(("gone", "first"))
    world.wait(EMPTY_SECONDS)
    world.wait(EMPTY_SECONDS)
    assert world.running[second] == (device,)
