"""The plugin's ledger is lost while a pod waits for the end of an earlier one's process: it waits until that ends."""

import shutil
from collections.abc import Collection

import pytest

from nodeagent.observed.kubelet import NoAnswer
from nodeagent.observed.processes import DeviceNumber, Process, ProcessTable
from tests.drawn import cells, thorough
from tests.nodeagent.halves import THREE, replace_both
from tests.nodeagent.observed.test_ends_proof import ENDED_BY_OTHERS
from tests.nodeagent.pods_memory import RunningIds
from tests.nodeagent.world import World

LOST = ["ledger", "an earlier ledger put back", "ledger and marks", "state directory"]


def lose(world: World, lost: str, earlier: bytes) -> None:
    if lost == "state directory":
        shutil.rmtree(world.state.root)
        world.state.plugin.directory.mkdir(parents=True)
    elif lost.startswith("an earlier"):
        world.state.plugin.ledger.write_bytes(earlier)
    else:
        world.state.plugin.ledger.unlink()
    if lost.endswith("marks"):
        world.state.plugin.seen_free.unlink()
    world.plugin.restart()


@pytest.mark.parametrize(
    ("lost", "agent", "ended"),
    cells(LOST, ["stays", "restarts", "restarts later"], ["Failed", "terminated", "deleted by force"]),
)
def test_who_waits_for_the_process_of_an_earlier_pod_waits_until_it_has_ended(
    world: World, lost: str, agent: str, ended: str
) -> None:
    holder = world.pod(THREE)
    (device,) = world.running[holder]
    world.settle()
    earlier = world.state.plugin.ledger.read_bytes()
    if ended == "deleted by force":
        world.force_delete(holder, seen_by_driver=False)
    else:
        world.pods[holder]["status"] = ENDED_BY_OTHERS[ended]
        world.forget(holder)
    late = world.pod(THREE, device=device)
    assert world.waiting[late] == (device,)
    world.run()
    lose(world, lost, earlier)
    if agent == "restarts":
        world.restart()
    for _ in range(4):
        world.wait(31)  # that two containers have one device fails the test
        if agent == "restarts later":
            world.restart()
    assert late in world.waiting

    world.end_container(holder)
    world.wait(61)
    world.wait(61)
    assert world.running[late] == (device,)


@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("restarted", [True, *thorough(False)])
def test_a_container_that_starts_again_goes_on_once_its_pod_is_known_as_the_only_one(
    world: World, lost: str, restarted: bool
) -> None:
    """As in CrashLoopBackOff, where the kubelet asks before each start."""
    holder = world.pod(THREE)
    (device,) = world.running[holder]
    uid = world.pods[holder]["metadata"]["uid"]
    world.tree.start(4711, uid, program="pause", files=())
    world.settle()
    earlier = world.state.plugin.ledger.read_bytes()
    if lost.startswith("an earlier"):
        world.pod(THREE)
        world.settle()
    lose(world, lost, earlier)
    if restarted:
        world.restart()
    for _ in range(3):
        world.end_container(holder)
        world.waiting[holder] = RunningIds.of(uid, [device], world.clock.now)
        world.wait(5)
        assert world.running[holder] == (device,)


def test_devices_that_were_seen_free_since_cause_no_look_at_processes_and_files(world: World) -> None:
    world.settle()
    lose(world, "ledger", b"")
    world.wait(61)
    world.wait(61)
    assert {entry.again for entry in world.plugin.allocations.values()} == {True}
    assert not world.plugin.unmarked()
    looks: list[str] = []
    see, ask = world.scan, world.holders

    def scan() -> ProcessTable | NoAnswer:
        looks.append("processes")
        return see()

    def holders(numbers: Collection[DeviceNumber]) -> tuple[Process, ...] | NoAnswer:
        looks.append("files")
        return ask(numbers)

    world.scan, world.holders = scan, holders  # type: ignore[method-assign]
    world.settle()
    assert not looks

    assert world.pod(THREE) in world.running
    world.settle()
    assert set(looks) == {"processes"}, "it was handed out a moment ago"


def test_what_an_older_ledger_does_not_name_is_not_destroyed_though_it_is_not_missed(world: World) -> None:
    """It is put back before an agent has read the newer one, and the kubelet has lost its checkpoint as well."""
    world.settle()
    earlier = world.state.plugin.ledger.read_bytes()
    holder = world.pod(THREE)
    (device,) = world.running[holder]
    world.detach(holder)
    lose(world, "an earlier ledger put back", earlier)
    world.kubelet.lose_checkpoint()
    world.settle()
    assert device in world.kubelet.devices[THREE], "the limit that docs/operating.md states"
    replace_both(world)
    for _ in range(3):
        world.wait(3600)
        assert device in {instance.uuid for instance in world.gpu().instances}
    world.finish(holder)
    world.wait(61)
    assert world.layout() == "7g.80gb at 0"
