"""A device that a process of no pod has open: the next pod waits for it, as for what is left of the pod that had it."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from nodeagent.handover.config import read_ledger_mark, write_ledger
from nodeagent.hardware.nvml import NvmlDriver
from nodeagent.observed.kubelet import NoAnswer
from nodeagent.observed.processes import DeviceNumber, Process, Processes
from sandbox.driver.procfs import MAJORS, capability_minor
from tests.drawn import cells
from tests.nodeagent.conftest import MakeWorld, cut, plain
from tests.nodeagent.halves import THREE, replace_both
from tests.nodeagent.items import whole
from tests.nodeagent.observed.gone import HOURS, freed, held, holder_of, open_files
from tests.nodeagent.pods_memory import uid_of
from tests.nodeagent.world import World

ZERO = (1, 5)
KEEPS = {
    "0::/system.slice/nvidia-dcgm.service": False,
    f"0::/system.slice/docker-{'a' * 64}.scope": True,
    "0::/user.slice/user-0.slice/session-3.scope": True,
}
"""Whether a process in this cgroup keeps a device after the pod that had it."""


@pytest.mark.parametrize("unit", ["mig", "whole"])
@pytest.mark.parametrize(
    ("process", "keeps"),
    [
        ({}, True),
        ({"began_at": 10**9, "up_seconds": 10**9}, True),
        ({"up_seconds": 0.25}, False),
        ({"pods": (uid_of(88),), "up_seconds": 10**9}, False),
    ],
)
def test_a_process_of_no_pod_that_has_the_device_open_keeps_it(
    make_world: MakeWorld, unit: str, process: dict[str, object], keeps: bool
) -> None:
    """One that is older than the Allocate is the node's own; one of another pod is that pod's."""
    world = make_world(cut(("3g.40gb", 4)) if unit == "mig" else plain())
    world.clock.now = 1.0
    if unit == "whole":
        world.apply(whole(0))
    world.settle(6)
    holder = world.pod(THREE if unit == "mig" else "nvidia.com/gpu")
    world.run()
    gpu = NvmlDriver().observe()[0]
    assert gpu.minor is not None
    number = (MAJORS["nvidia"], gpu.minor)
    if unit == "mig":
        number = (MAJORS["nvidia-caps"], capability_minor(gpu.minor, gpu.instances[0].id))
    open_files(world, number, **process)  # type: ignore[arg-type]
    world.force_delete(holder, seen_by_driver=False)
    world.end_container(holder)

    world.wait(31)
    found = world.agent.observer.observe()
    assert bool(found.pods.vanished) is keeps
    assert bool(found.usage.left) is keeps
    if keeps and unit == "whole":
        since = ", since 2001-09-09T01:46:40Z" if process else ""
        left = f"process 4711 (dockerd{since}), in no pod's cgroup, is left of pod default/p1, which is gone"
        assert f"{left}: no pod gets the whole GPU until it has ended" in world.gpu_status()["message"]


def test_a_process_of_no_pod_keeps_an_instance_though_no_ledger_has_it_any_more(world: World) -> None:
    holder = holder_of(world)
    world.state.plugin.ledger.unlink()
    world.plugin.restart()
    world.settle(3)
    (device,) = world.running[holder]
    gpu = NvmlDriver().observe()[0]
    assert gpu.minor is not None
    instance = next(each.id for each in gpu.instances if each.uuid == device)
    open_files(world, (MAJORS["nvidia-caps"], capability_minor(gpu.minor, instance)), up_seconds=1.0)
    world.force_delete(holder, seen_by_driver=False)
    world.end_container(holder)
    replace_both(world)
    world.wait(HOURS)
    assert held(world)
    assert "process 4711 (dockerd), in no pod's cgroup, is left of pod default/p1" in world.gpu_status()["message"]

    open_files(world)
    world.wait(31)
    assert freed(world)


@pytest.mark.parametrize(
    ("unit", "end", "cgroup"),
    cells(["mig", "whole"], ["finished", "finished, then deleted", "deleted by force"], [*KEEPS]),
)
def test_a_service_that_systemd_has_restarted_meanwhile_keeps_no_device(
    make_world: MakeWorld, unit: str, end: str, cgroup: str
) -> None:
    world = make_world(cut(("3g.40gb", 4)) if unit == "mig" else plain())
    if unit == "whole":
        world.apply(whole(0))
    world.settle(6)
    holder = world.pod(THREE if unit == "mig" else "nvidia.com/gpu")
    (device,) = world.running[holder]
    world.settle()
    opener = 4711
    world.tree.start(opener, cgroup=cgroup, files=["/dev/zero"], began_seconds=int(world.clock.now) + 1)
    read = Processes(world.tree.root)

    def holders(numbers: Collection[DeviceNumber]) -> tuple[Process, ...]:
        found = read.holders([ZERO] if numbers else ())
        assert not isinstance(found, NoAnswer)
        return tuple(replace(each, opened=frozenset(numbers)) for each in found)

    world.holders = holders  # type: ignore[method-assign]
    world.run(5)
    if end == "deleted by force":
        world.force_delete(holder, seen_by_driver=False)
        world.end_container(holder)
    else:
        world.finish(holder)
    if "then" in end:
        world.wait(5)
        del world.pods[holder]
    world.wait(15, times=4)
    offered = [i for ids in world.kubelet.devices.values() for i in ids]
    assert (device in offered) is not KEEPS[cgroup]

    world.tree.end(opener)
    world.wait(15, times=4)
    assert device in [i for ids in world.kubelet.devices.values() for i in ids]


@pytest.mark.parametrize("unit", ["mig", "whole"])
def test_a_process_of_no_pod_that_is_older_than_the_next_allocate_keeps_the_next_pod_waiting(
    make_world: MakeWorld, unit: str
) -> None:
    """The kubelet gave the device to another pod before the agent had noticed that the first one is gone."""
    world = make_world(cut(("3g.40gb", 4)) if unit == "mig" else plain())
    if unit == "whole":
        world.apply(whole(0))
    world.settle(6)
    resource = THREE if unit == "mig" else "nvidia.com/gpu"
    holder = world.pod(resource)
    (device,) = world.running[holder]
    world.settle()
    gpu = NvmlDriver().observe()[0]
    assert gpu.minor is not None
    number = (MAJORS["nvidia"], gpu.minor)
    if unit == "mig":
        number = (MAJORS["nvidia-caps"], capability_minor(gpu.minor, gpu.instances[0].id))
    open_files(world, number, up_seconds=world.clock.now)
    world.run(10)
    world.force_delete(holder, seen_by_driver=False)
    world.end_container(holder)
    late = world.pod(resource, device=device)
    world.wait(15, times=6)
    assert world.waiting[late] == (device,)

    open_files(world)
    world.wait(15, times=4)
    assert world.running[late] == (device,)


@pytest.mark.parametrize(("up_seconds", "keeps"), [(150.0, True), (50.0, False)])
@pytest.mark.parametrize("set_seconds", [-86400.0, 86400.0])
def test_a_clock_that_is_set_makes_no_process_older_or_younger(
    make_world: MakeWorld, up_seconds: float, keeps: bool, set_seconds: float
) -> None:
    """The Allocate was 100 s after the boot."""
    world = make_world(plain())
    world.clock.now = 10.0**6
    world.apply(whole(0))
    world.settle(6)
    holder = world.pod("nvidia.com/gpu")
    entries = [replace(entry, up_seconds=100.0) for entry in world.plugin.allocations.values()]
    write_ledger(world.state.plugin, entries, read_ledger_mark(world.state.plugin))
    world.run()
    minor = NvmlDriver().observe()[0].minor
    assert minor is not None
    began_at = world.plugin.allocations[world.running[holder][0]].at + set_seconds + up_seconds - 100
    open_files(world, (MAJORS["nvidia"], minor), began_at=began_at, up_seconds=up_seconds)
    world.force_delete(holder, seen_by_driver=False)
    world.end_container(holder)

    world.wait(31)
    assert bool(world.agent.observer.observe().usage.left) is keeps


def test_a_gpu_that_cannot_be_read_hides_who_has_it_open(world: World) -> None:
    holder = holder_of(world, 0)
    world.force_delete(holder, seen_by_driver=False)
    world.end_container(holder)
    setattr(world, "holders", lambda _numbers: NoAnswer(reason="no"))  # noqa: B010
    replace_both(world)
    world.wait(HOURS)

    assert held(world)
    assert "no, and it is not known what is left of pod default/p1, which is gone" in world.gpu_status()["message"]
