"""Each witness that a device is given to one pod alone: a story that goes well, and does harm once it is switched off.

Harm is that a container starts with what another one uses, or that this is destroyed. With `test_each_witness` the list
is complete: whatever agent and device plugin read of holders is in one of them, or stands here with the reason.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import fields, replace

import pytest

from nodeagent.advertise import free_marks
from nodeagent.handover.config import NO_LEDGER, Allocation, Loaded
from nodeagent.handover.seen_free import SeenFree, read_seen_free
from nodeagent.observation import Observation
from nodeagent.observed.ends import ProcessReader
from nodeagent.observed.memory import Memory
from nodeagent.observed.processes import Process, ProcessTable
from nodeagent.observed.witnesses import KubeletReader
from tests.nodeagent import node_fakes
from tests.nodeagent.halves import THREE, replace_both
from tests.nodeagent.observed.test_each_witness import WITNESSES, Step, switch_off
from tests.nodeagent.world import World

TOUCHED = r"went with|starts with .*, which .* use"


def next_one(world: World, device: str) -> None:
    """A pod comes to which the kubelet gives just this device, as far as the plugin lets it, and time passes."""
    world.pod(THREE, device=device)
    world.wait(60)


def forced(world: World) -> str:
    """The device of a pod that was deleted by force and runs on."""
    holder = world.pod(THREE)
    world.settle(3)
    world.force_delete(holder, seen_by_driver=False)
    world.running["gone", "first"] = world.running.pop(holder)
    return world.running["gone", "first"][0]


def checkpoint_lost(world: World) -> None:
    """The kubelet takes the device of a pod that runs for free."""
    holder = world.pod(THREE)
    world.settle(3)
    world.kubelet.lose_checkpoint()
    next_one(world, world.running[holder][0])


def given_away_at_once(world: World) -> None:
    """The kubelet gives it to the next pod before the agent has looked."""
    next_one(world, forced(world))


def starts_late(world: World) -> None:
    """A plugin of an earlier version does not ask whether the pod is alone; the sandbox is made meanwhile."""
    device = forced(world)
    world.plugin.starts = lambda *_: False  # type: ignore[method-assign]
    world.pod(THREE, device=device)
    world.run()
    world.plugin.starts = lambda device_id, *_: device_id not in world.plugin.config.occupied  # type: ignore[method-assign]
    world.wait(60)


def processes_elsewhere(world: World) -> None:
    """The agent has a PID namespace of its own, with some system processes in it."""
    world.kubelet.same_processes = False
    world.scan = lambda: ProcessTable(processes=(Process(pid=1, program="systemd"),))  # type: ignore[method-assign]
    holder = world.pod(THREE)
    world.pods[holder]["spec"]["terminationGracePeriodSeconds"] = 7200
    world.settle(3)
    world.force_delete(holder, seen_by_driver=False)
    replace_both(world)
    world.wait(31)
    world.wait(120)


def ledger_deleted(world: World) -> None:
    """No agent has read it, and the kubelet has lost its checkpoint, too."""
    world.settle(3)
    holder = world.pod(THREE)
    world.state.plugin.ledger.unlink()
    world.state.plugin.seen_free.unlink()
    world.kubelet.lose_checkpoint()
    world.plugin.restart()
    world.kubelet.step()
    next_one(world, world.running[holder][0])


def ledger_put_back(world: World) -> None:
    """One of before the pod, under the same name."""
    other = world.pod(THREE)
    world.finish(other)
    world.settle(3)
    earlier = world.state.plugin.ledger.read_bytes()
    holder = next(i for i in world.kubelet.devices[THREE] if i not in world.plugin.allocations)
    key = world.pod(THREE, device=holder)
    world.settle(3)
    world.force_delete(key, seen_by_driver=False)
    world.running["gone", "first"] = world.running.pop(key)
    world.state.plugin.ledger.write_bytes(earlier)
    world.plugin.restart()
    next_one(world, holder)


def all_records_wiped(world: World) -> None:
    """While the pod runs, which then is deleted by force: the kubelet's checkpoint alone named its device."""
    world.settle(3)
    holder = world.pod(THREE)
    (device,) = world.running[holder]
    shutil.rmtree(world.state.root)
    world.state.plugin.directory.mkdir(parents=True)
    world.plugin.restart()
    world.restart()
    world.settle(3)
    world.force_delete(holder, seen_by_driver=False)
    world.running["gone", "first"] = world.running.pop(holder)
    next_one(world, device)


def blind_again(world: World) -> None:
    def allocate(device_id: str, resource: str, at: float) -> bool:
        answered = allocating(device_id, resource, at)
        entries = world.plugin.allocations
        entries.update({i: replace(entry, again=False) for i, entry in entries.items()})
        return answered

    allocating = world.plugin.allocate
    world.plugin.allocate = allocate  # type: ignore[method-assign]


def blind_alone(world: World) -> None:
    world.plugin.starts = lambda *_: True  # type: ignore[method-assign]


def blind_shares(world: World) -> None:
    world.kubelet.shares_processes = lambda: True  # type: ignore[method-assign]


def blind_mark(world: World) -> None:
    swap(world, node_fakes, "read_seen_free", lambda files: replace(read_seen_free(files), ledger=NO_LEDGER))


def blind_beginning(world: World) -> None:
    def restart() -> None:
        starting()
        world.plugin.begun_with = frozenset()

    starting = world.plugin.restart
    world.plugin.restart = restart  # type: ignore[method-assign]


def blind_marks(world: World) -> None:
    swap(world, free_marks, "_free", lambda _observation, ids: set(ids))


def swap(world: World, where: object, name: str, function: Callable[..., object]) -> None:
    switch_off(world, where, name, None)
    setattr(where, name, function)


SHARED: Mapping[str, tuple[Step, Step]] = {
    "what was seen free": (checkpoint_lost, blind_marks),
    "that it was handed out again": (given_away_at_once, blind_again),
    "which pod is alone": (given_away_at_once, blind_alone),
    "what is occupied": (starts_late, lambda world: switch_off(world, Observation, "occupied", set())),
    "whether processes are seen": (processes_elsewhere, blind_shares),
    "the ledger's name": (ledger_deleted, lambda world: switch_off(world, node_fakes, "read_loaded", None)),
    "which ledger was read": (ledger_put_back, blind_mark),
    "what the checkpoint named at first": (all_records_wiped, blind_beginning),
}
"""By witness: the story that needs it, and how it is switched off."""


@pytest.mark.parametrize("witness", SHARED)
def test_with_all_witnesses_nothing_is_given_twice(world: World, witness: str) -> None:
    world.settle(3)
    SHARED[witness][0](world)
    assert world.running, "it still runs"


@pytest.mark.parametrize("witness", SHARED)
def test_without_this_one_something_is_given_twice(world: World, witness: str) -> None:
    world.settle(3)
    story, blind = SHARED[witness]
    blind(world)
    try:
        with pytest.raises(AssertionError, match=TOUCHED):
            story(world)
    finally:
        getattr(world, "undo_blindness", lambda: None)()


READ: Mapping[str, str] = {
    "KubeletReader.listed": "the kubelet's list",
    "KubeletReader.checkpoint": "the kubelet's checkpoint",
    "KubeletReader.seconds_since_start": "the kubelet's start",
    "KubeletReader.shares_processes": "whether processes are seen",
    "ProcessReader.scan": "processes by cgroup",
    "ProcessReader.holders": "open device files",
    "SeenFree.allocations": "what was seen free",
    "SeenFree.alone": "which pod is alone",
    "SeenFree.ledger": "which ledger was read",
    "Memory.pods": "the agent's memory",
    "Memory.ledger": "that records were lost",
    "Allocation.id": "the device plugin's ledger",
    "Allocation.again": "that it was handed out again",
    "Loaded.book": "the ledger's name",
    "Loaded.named": "what the checkpoint named at first",
}
"""By what is read of holders: its witness."""

NONE: Mapping[str, str] = {
    "KubeletReader.allocatable": "what is on offer, not who has it",
    "KubeletReader.rival_sockets": "another plugin; while it serves nothing is offered",
    "KubeletReader.identity": "which kubelet has admitted the pods: what no new pod may get stays healthy until then",
    "SeenFree.version": "the form",
    "Memory.answered": "says that no holder is waited for any more",
    "Memory.ended": "says that a holder has ended",
    "Memory.forgotten": "what the kubelet takes for free, of the holders in `pods`",
    "Memory.boot_id": "ends what others say",
    "Memory.version": "the form",
    "Allocation.resource": "names it for people, and says of which resource none was handed out",
    "Allocation.at": "tells one Allocate from the next",
    "Allocation.boot_id": "ends what others say",
    "Allocation.up_seconds": "rules processes out that are older",
    "Loaded.hash": "what is on offer",
    "Loaded.boot_token": "tells one plugin process from the next",
    "Loaded.registered": "what is on offer",
    "Loaded.mps_root": "where clients of MPS connect",
    "Loaded.errors": "for people",
    "Loaded.version": "the form",
}
"""What else stands there, and why it is no witness."""


def test_the_lists_name_everything_that_is_read_of_holders() -> None:
    protocols = (KubeletReader, ProcessReader)
    read = {f"{each.__name__}.{name}" for each in protocols for name in vars(each) if not name.startswith("_")}
    files = (SeenFree, Memory, Allocation, Loaded)
    read |= {f"{each.__name__}.{each_field.name}" for each in files for each_field in fields(each)}
    assert read == READ.keys() | NONE.keys()
    assert not READ.keys() & NONE.keys()
    assert set(READ.values()) <= {*WITNESSES, *SHARED}
