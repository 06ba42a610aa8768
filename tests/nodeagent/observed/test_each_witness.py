"""Each witness of use is needed: a story that goes well, and does harm once this one witness is switched off.

Harm is what the world finds by itself: something that a container uses was destroyed. A witness that no story needs
would be untested, or needless.
"""

from collections.abc import Callable, Mapping

import pytest

from nodeagent.handover.config import read_ledger_mark, write_ledger
from nodeagent.observed import pods, usage
from nodeagent.observed.kubelet import Listed
from nodeagent.observed.lost_records import LostRecords
from nodeagent.observed.processes import Process, ProcessTable
from sandbox.driver import processes
from tests.nodeagent.halves import THREE, replace_both
from tests.nodeagent.items import RUNNING, started
from tests.nodeagent.watched import TouchedError
from tests.nodeagent.world import World

Step = Callable[[World], None]


def orphan(world: World) -> None:
    """A pod that was deleted by force runs on for hours, unknown to the driver."""
    holder = world.pod(THREE)
    world.run()
    world.force_delete(holder, seen_by_driver=False)
    replace_both(world)
    world.wait(31)
    world.wait(7200)


def escaped(world: World) -> None:
    """Its process has left the pod's cgroups, and has the device open."""
    holder = world.pod(THREE)
    world.run()
    world.force_delete(holder, seen_by_driver=False)
    world.running["no", "pod"] = world.running.pop(holder)
    world.hide_processes()
    replace_both(world)
    world.wait(31)
    world.wait(7200)


def unlisted_process(world: World) -> None:
    """A program works on the instance without any pod."""
    uuid = world.gpu().instances[0].uuid
    assert uuid
    world.running["no", "pod"] = (uuid,)
    processes.attach(world.machine, uuid, 77, 1)
    replace_both(world)
    world.wait(60)


def listed_pod(world: World) -> None:
    """A pod that runs, and neither a record nor a process of it but the kubelet's."""
    holder = world.pod(THREE)
    processes.detach(world.machine, world.pid(holder))
    forget_records(world)
    world.pods[holder]["spec"]["containers"][0]["resources"] = {}
    replace_both(world)
    world.wait(60)
    world.wait(60)


def kubelet_lost_its_memory(world: World) -> None:
    """The kubelet lists a running pod without its device, and the agent has just started."""
    holder = world.pod(THREE)
    processes.detach(world.machine, world.pid(holder))
    world.settle(3)
    world.kubelet.entries = ()
    write_ledger(world.state.plugin, (), read_ledger_mark(world.state.plugin))
    world.kubelet.held[holder] = {}
    world.pods[holder]["spec"]["containers"][0]["resources"] = {}
    world.restart()
    replace_both(world)
    world.wait(120)
    world.wait(60)


def checkpoint_alone(world: World) -> None:
    """The kubelet has just started and lists a pod without its device; the state directory is new."""
    holder = world.pod(THREE)
    processes.detach(world.machine, world.pid(holder))
    entries = world.kubelet.entries
    forget_records(world)
    world.kubelet.entries = entries
    world.kubelet.held[holder] = {}
    world.pods[holder]["spec"]["containers"][0]["resources"] = {}
    world.restart()
    replace_both(world)
    world.wait(120)
    world.wait(60)


def handed_out(world: World) -> None:
    """An Allocate was answered a moment ago; its pod was deleted by force and is about to start."""
    holder = world.pod(THREE)
    world.hide_processes()
    world.force_delete(holder, seen_by_driver=False)
    replace_both(world)
    world.settle(20)


def kubelet_starts(world: World) -> None:
    """Its List is empty at first, and its pods are not known yet."""
    holder = world.pod(THREE)
    processes.detach(world.machine, world.pid(holder))
    forget_records(world)
    world.kubelet.held[holder] = {}
    world.pods[holder]["spec"]["containers"][0]["resources"] = {}
    world.kubelet.age_seconds = 5.0
    world.restart()
    replace_both(world)
    world.settle(20)


def late_watch(world: World) -> None:
    """The watch lost a pod that lives, between two of its containers."""
    holder = world.pod(THREE)
    world.run()
    processes.detach(world.machine, world.pid(holder))
    world.hide_processes()
    raw, held = world.pods[holder], world.running[holder]
    world.force_delete(holder, seen_by_driver=False)
    world.run()
    world.pods_late, world.pods[holder] = True, raw
    world.running[holder] = held
    replace_both(world)
    world.wait(31)
    world.wait(120)


def unlisted(world: World) -> tuple[str, str]:
    """A pod runs that the kubelet lists without its device, and no record has it with one."""
    holder = world.pod(THREE)
    processes.detach(world.machine, world.pid(holder))
    forget_records(world)
    world.kubelet.held[holder] = {}
    world.restart()
    return holder


def replaced_in_a_minute(world: World) -> None:
    replace_both(world)
    world.wait(120)
    world.wait(60)


def requesting(world: World) -> None:
    """All that is left of what it holds is how much it requests."""
    unlisted(world)
    replaced_in_a_minute(world)


def reported(world: World) -> None:
    """The kubelet has written it into the pod's status."""
    holder = unlisted(world)
    world.pods[holder]["spec"]["containers"][0]["resources"] = {}
    device = {"resourceID": world.running[holder][0], "health": "Healthy"}
    world.pods[holder]["status"] = started()
    world.pods[holder]["status"]["containerStatuses"] = [
        {**RUNNING, "allocatedResourcesStatus": [{"name": THREE, "resources": [device]}]}
    ]
    replaced_in_a_minute(world)


def not_at_the_api(world: World) -> None:
    """A static pod whose mirror a policy refuses; its processes are not in its cgroup."""
    holder = unlisted(world)
    world.pods.pop(holder)
    world.hide_processes()
    world.restart()
    replaced_in_a_minute(world)


def claiming(world: World) -> None:
    """A pod has it by a claim, and this kubelet lists none."""
    world.settle(3)
    device = world.gpu().instances[0].uuid
    assert device
    world.pod_of_claim("gpu-0-mig-3g40gb-9-0", device, "record")
    replaced_in_a_minute(world)


def records_wiped(world: World) -> None:
    """A pod was deleted by force and runs on; then the state directory was lost."""
    holder = world.pod(THREE)
    world.run()
    world.force_delete(holder, seen_by_driver=False)
    forget_records(world)
    world.state.holdings.unlink()
    world.restart()
    replaced_in_a_minute(world)


def forget_records(world: World) -> None:
    world.kubelet.entries = ()
    write_ledger(world.state.plugin, (), read_ledger_mark(world.state.plugin))
    world.plugin.allocations.clear()


def see_open_files(world: World) -> None:
    setattr(world, "holders", lambda _numbers: (Process(pid=77, program="x"),))  # noqa: B010


def blind_cgroups(world: World) -> None:
    world.scan = lambda: ProcessTable(processes=(Process(pid=1, program="systemd"),))  # type: ignore[method-assign]


def blind_list(world: World) -> None:
    known = world.kubelet.known
    world.kubelet.listed = lambda: Listed(pods={key: {} for key in known})  # type: ignore[method-assign]


def blind_memory(world: World) -> None:
    def forgetful() -> None:
        world.state.holdings.unlink(missing_ok=True)
        restart()

    restart = world.restart
    world.restart = forgetful  # type: ignore[method-assign]


def blind_checkpoint(world: World) -> None:
    world.kubelet.checkpoint = lambda: ()  # type: ignore[method-assign]


def blind_ledger(world: World) -> None:
    def allocate(device_id: str, resource: str, at: float) -> bool:
        answered = allocating(device_id, resource, at)
        forget_records(world)
        return answered

    allocating = world.plugin.allocate
    world.plugin.allocate = allocate  # type: ignore[method-assign]
    world.plugin.starts = lambda *_: True  # type: ignore[method-assign]


def blind_start(world: World) -> None:
    world.kubelet.seconds_since_start = lambda: 3600.0  # type: ignore[method-assign]


def blind_api(world: World) -> None:
    world.fresh_pods = lambda: ()  # type: ignore[method-assign]
    world.restart()


def blind_driver(world: World) -> None:
    switch_off(world, processes, "attach", None)


def switch_off(world: World, where: object, name: str, answer: object) -> None:
    """A function that always answers so."""
    before = getattr(where, name)
    setattr(where, name, lambda *_args, **_more: answer)
    world.undo_blindness = lambda: setattr(where, name, before)  # type: ignore[attr-defined]


WITNESSES: Mapping[str, tuple[Step, Step, Step | None]] = {
    "processes by cgroup": (orphan, blind_cgroups, None),
    "open device files": (escaped, lambda world: setattr(world, "holders", lambda _numbers: ()), see_open_files),
    "NVML's processes": (unlisted_process, blind_driver, None),
    "the kubelet's list": (listed_pod, blind_list, None),
    "the agent's memory": (kubelet_lost_its_memory, blind_memory, None),
    "the kubelet's checkpoint": (checkpoint_alone, blind_checkpoint, None),
    "the device plugin's ledger": (handed_out, blind_ledger, None),
    "the kubelet's start": (kubelet_starts, blind_start, None),
    "the API server itself": (late_watch, blind_api, None),
    "what pods request": (requesting, lambda world: switch_off(world, usage, "shortfalls", {}), None),
    "the pods' status": (reported, lambda world: switch_off(world, pods, "_reported", set()), None),
    "which pods there are": (not_at_the_api, lambda world: switch_off(world, usage, "out_of_step", ""), None),
    "records of claims": (claiming, blind_checkpoint, None),
    "that records were lost": (records_wiped, lambda world: switch_off(world, LostRecords, "lost", ""), None),
}
"""By witness: the story that needs it, how it is switched off, and how it is switched on where it is not already."""


@pytest.mark.parametrize("witness", WITNESSES)
def test_with_all_witnesses_nothing_in_use_is_destroyed(world: World, witness: str) -> None:
    story, _, see = WITNESSES[witness]
    if see is not None:
        see(world)
    story(world)
    assert world.running, "it still runs"


@pytest.mark.parametrize("witness", WITNESSES)
def test_without_this_one_something_in_use_is_destroyed(world: World, witness: str) -> None:
    story, blind, _ = WITNESSES[witness]
    blind(world)
    try:
        with pytest.raises(TouchedError):
            story(world)
    finally:
        getattr(world, "undo_blindness", lambda: None)()
