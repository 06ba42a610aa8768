"""Any of the records of who holds what are lost at once, before or after an agent has read them: what is held is on no
list, from the first one of the next device plugin on."""

import json
from itertools import product

import pytest

from tests.drawn import cells, points
from tests.nodeagent.halves import THREE
from tests.nodeagent.world import World

RECORDS = ("ledger", "marks", "memory", "checkpoint", "pair")
READ = ("never", "before it", "with it")
EACH = list(product([False, True], repeat=5))
ALONE = [each for each in EACH if sum(each) == 1]
LOSSES = [
    tuple(r for r, lost in zip(RECORDS, each, strict=True) if lost)
    for each in dict.fromkeys([*ALONE, *points(EACH, each=5)])  # an odd step: neighbours differ in more than the last
]


def named(value: str | tuple[str, ...]) -> str:
    return value if isinstance(value, str) else " ".join(value) or "none"


def lose(world: World, lost: tuple[str, ...]) -> None:
    """All three programs start again."""
    for name, path in (
        ("ledger", world.state.plugin.ledger),
        ("marks", world.state.plugin.seen_free),
        ("memory", world.state.holdings),
    ):
        if name in lost:
            path.unlink(missing_ok=True)
    if "pair" in lost and world.state.holdings.exists():
        memory = json.loads(world.state.holdings.read_text())
        world.state.holdings.write_text(json.dumps({k: v for k, v in memory.items() if k not in ("bootId", "ledger")}))
    world.plugin.restart()
    if "checkpoint" in lost:
        world.kubelet.lose_checkpoint()
    world.kubelet.step()
    world.restart()


def holder_of(world: World, read: str) -> tuple[tuple[str, str], str]:
    """A pod with its device, as far as an agent has `read` the ledger; the driver does not show its process."""
    if read == "before it":
        world.finish(world.pod(THREE))
        world.settle()
        world.wait(61)
    key = world.pod(THREE)
    (device,) = world.running[key]
    world.detach(key)
    if read == "with it":
        world.settle()
    return key, device


def on_offer(world: World, device: str) -> bool:
    return device in world.kubelet.devices[THREE] and device not in world.kubelet.given()


@pytest.mark.parametrize(("lost", "read"), points(cells(LOSSES, READ), each=2), ids=named)
def test_what_is_held_is_on_no_list(world: World, lost: tuple[str, ...], read: str) -> None:
    key, device = holder_of(world, read)
    lose(world, lost)
    assert not on_offer(world, device), "the first list"
    for seconds in (0, 0.5, 1, 5, 15, 31, 61, 3600, 3600):
        world.run(seconds)
        assert not on_offer(world, device)

    world.finish(key)
    world.wait(61)
    world.wait(61)
    assert on_offer(world, device)


@pytest.mark.parametrize(("lost", "read"), points(cells(LOSSES, READ), each=2), ids=named)
def test_no_container_starts_with_what_a_pod_has_that_was_deleted_by_force(
    world: World, lost: tuple[str, ...], read: str
) -> None:
    """The kubelet itself has given it up, and may give it to the next pod at once, which waits."""
    key, device = holder_of(world, read)
    world.force_delete(key)
    lose(world, lost)
    late = world.pod(THREE, device=device)
    for seconds in (0, 0.5, 1, 5, 15, 31, 61, 3600, 3600):
        world.run(seconds)
        assert late not in world.running
        assert not on_offer(world, device)

    world.end_container(key)
    world.wait(61)
    world.wait(61)
    assert world.running.get(late) == (device,) or on_offer(world, device)
