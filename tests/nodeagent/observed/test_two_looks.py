"""One look at the node's processes may miss one, and may fail: neither proves that nothing is left."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kube.timestamps import api_time
from nodeagent.handover.config import read_ledger_mark, write_ledger
from nodeagent.observed.kubelet import NoAnswer
from nodeagent.observed.processes import ProcessTable
from sandbox.driver.procfs import MAJORS
from tests.drawn import cells, thorough
from tests.nodeagent.conftest import MakeWorld, cut, plain
from tests.nodeagent.halves import THREE
from tests.nodeagent.items import mig, pod_json, started, whole
from tests.nodeagent.observed.gone import open_files
from tests.nodeagent.observed.test_came_and_went import holder_of, waits_until_it_has_ended
from tests.nodeagent.observed.test_ends_proof import ENDED_BY_OTHERS
from tests.nodeagent.pods_memory import uid_of
from tests.nodeagent.world import World

UNITS = pytest.mark.parametrize("unit", ["mig", "whole"])


def planned(make_world: MakeWorld, unit: str) -> tuple[World, tuple[str, str], tuple[int, int]]:
    """With a plan, in whose status a reason shows."""
    world, holder, number = holder_of(make_world, unit)
    world.apply(whole(0) if unit == "whole" else mig(0, ("3g.40gb", 4)))
    return world, holder, number


def with_another_pod(world: World) -> None:
    """A pod without a device lives on the node, and its process is seen."""
    key = ("kube-system", "proxy")
    world.tree.start(4000, uid_of(500), program="pause", files=())
    world.pods[key] = {**pod_json(key, "cpu", 1, uid=uid_of(500)), "status": started()}
    world.kubelet.known.add(key)


def misses(world: World, uid: str, when: Callable[[int], bool]) -> list[int]:
    """Looks at the processes miss those of this pod where `when` says so, by their number."""
    scan, looks = world.scan, list[int]()

    def look() -> ProcessTable | NoAnswer:
        looks.append(len(looks))
        table = scan()
        assert isinstance(table, ProcessTable)
        seen = tuple(each for each in table.processes if uid not in each.pods)
        return replace(table, processes=seen) if when(looks[-1]) else table

    world.scan = look  # type: ignore[method-assign]
    return looks


def offered(world: World, device: str) -> bool:
    return any(device in ids for ids in world.kubelet.devices.values())


def ended_by_another(world: World, key: tuple[str, str]) -> str:
    """A client has written the phase; returns the UID."""
    world.detach(key)
    world.forget(key)
    world.pods[key]["status"] = ENDED_BY_OTHERS["Failed"]
    return str(world.pods[key]["metadata"]["uid"])


@UNITS
@pytest.mark.parametrize("every", [1, *thorough(2, 3)])
def test_a_look_that_misses_a_process_of_a_finished_pod_frees_nothing(
    make_world: MakeWorld, unit: str, every: int
) -> None:
    world, holder, _ = planned(make_world, unit)
    with_another_pod(world)
    (device,) = world.running[holder]
    world.settle()
    looks = misses(world, ended_by_another(world, holder), lambda n: n == 0 if every == 1 else n % every == 0)
    for _ in range(8):
        world.run(1)
    world.wait(15)
    assert len(looks) > 2
    assert not offered(world, device)
    assert world.agent.observer.observe().usage.held[device] == "default/p1"


@UNITS
def test_files_that_are_not_read_keep_what_a_finished_pod_had_and_the_plan_says_why(
    make_world: MakeWorld, unit: str
) -> None:
    world, holder, _ = planned(make_world, unit)
    with_another_pod(world)
    (device,) = world.running[holder]
    world.settle()
    why = "the open files of process 7 cannot be read: permission denied"
    world.holders = lambda numbers: NoAnswer(reason=why)  # type: ignore[method-assign]
    world.finish(holder)
    world.wait(15, times=4)
    assert not offered(world, device)
    left = f"{why}, and it is not known what is left of pod default/p1, which is gone: no pod gets "
    assert left in world.gpu_status()["message"]

    open_files(world)
    world.wait(15, times=2)
    assert offered(world, device)


def test_files_that_are_not_read_for_a_moment_take_nothing_of_a_finished_pod_off_the_list(world: World) -> None:
    holder = world.pod(THREE)
    (device,) = world.running[holder]
    world.settle()
    world.holders = lambda numbers: NoAnswer(reason="too many files")  # type: ignore[method-assign]
    world.finish(holder)
    for _ in range(15):
        world.run()
        assert offered(world, device)
    open_files(world)
    world.run()
    world.run()
    assert not world.agent.observer.observe().usage.held


@pytest.mark.parametrize("seen_first", [False, True])
def test_a_look_that_misses_a_strangers_process_settles_no_loss(make_world: MakeWorld, seen_first: bool) -> None:
    """Its pod was deleted by force, and the state directory wiped."""
    world = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)))
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    with_another_pod(world)
    world.settle()
    holder = world.pod(THREE)
    (device,), uid = world.running[holder], uid_of(1)
    world.settle()
    world.force_delete(holder, seen_by_driver=False)
    for record in (world.state.holdings, world.state.plugin.ledger, world.state.plugin.seen_free):
        record.unlink()
    world.plugin.restart()
    misses(world, uid, lambda n: n == int(seen_first))
    world.restart()
    for _ in range(4):
        world.run(1)
    world.wait(15)
    assert uid in world.agent.observer.observe().usage.blind
    assert not offered(world, device)


@pytest.mark.parametrize("seen_first", [False, True])
def test_a_look_that_misses_a_pod_which_runs_though_the_api_shows_it_as_not_started_settles_no_loss(
    make_world: MakeWorld, seen_first: bool
) -> None:
    world, holder, _ = holder_of(make_world, "mig")
    with_another_pod(world)
    (device,) = world.running[holder]
    world.pods[holder]["status"] = {"phase": "Pending", "startTime": "t"}
    world.detach(holder)
    world.kubelet.held[holder], world.kubelet.entries = {}, ()
    for record in (world.state.holdings, world.state.plugin.ledger, world.state.plugin.seen_free):
        record.unlink(missing_ok=True)
    world.plugin.restart()
    misses(world, uid_of(1), lambda n: n == int(seen_first))
    world.restart()
    for _ in range(4):
        world.run(1)
    assert "pod default/p1 may run" in world.agent.observer.observe().usage.blind
    assert not offered(world, device)


@UNITS
@pytest.mark.parametrize(("lost", "older"), cells(["before the next Allocate", "after it"], [False, True]))
def test_a_process_outside_keeps_the_next_pod_waiting_though_the_ledger_was_lost(
    make_world: MakeWorld, unit: str, lost: str, older: bool
) -> None:
    """Whether it is older than the Allocate is not known any more."""
    world, holder, number = planned(make_world, unit)
    (device,) = world.running[holder]
    resource = world.plugin.allocations[device].resource
    world.settle()
    open_files(world, number, up_seconds=0.25 if older else world.clock.now)
    world.run(10)
    world.force_delete(holder, seen_by_driver=False)
    world.end_container(holder)
    if lost.startswith("before"):
        world.state.plugin.ledger.unlink()
        world.plugin.restart()
    late = world.pod(resource, device=device)
    if lost.startswith("after"):
        world.state.plugin.ledger.unlink()
        world.plugin.restart()
    world.wait(15, times=4)
    assert "process 4711 (dockerd), in no pod's cgroup, is left of " in world.gpu_status()["message"]
    waits_until_it_has_ended(world, late, device, listed=lost.startswith("after"))


@pytest.mark.parametrize(("seconds", "keeps"), [(-60, False), (0, True), (60, True)])
@pytest.mark.parametrize("end", ["finished", "deleted by force"])
def test_where_no_record_says_when_it_was_handed_out_a_process_counts_unless_it_is_older_than_the_pod(
    make_world: MakeWorld, seconds: int, keeps: bool, end: str
) -> None:
    """As of a GPU that NVIDIA's plugin handed out, while a monitor runs that a person started."""
    world, holder, number = holder_of(make_world, "whole")
    with_another_pod(world)
    (device,) = world.running[holder]
    world.settle()
    began = datetime(2026, 11, 27, 12, tzinfo=UTC)
    world.pods[holder]["status"]["startTime"] = api_time(began)
    world.plugin.allocations.clear()
    write_ledger(world.state.plugin, (), read_ledger_mark(world.state.plugin))
    world.run()
    open_files(world, number, began_at=began.timestamp() + seconds, up_seconds=1.0)
    if end == "finished":
        world.finish(holder)
        world.pods[holder]["status"]["startTime"] = api_time(began)
    else:
        world.force_delete(holder, seen_by_driver=False)
        world.end_container(holder)
    world.wait(15, times=4)
    assert offered(world, device) is not keeps


@UNITS
def test_a_program_of_the_node_keeps_nothing_where_no_record_was_lost(make_world: MakeWorld, unit: str) -> None:
    """A monitor that a person started by hand, or a desktop, has every GPU open before any pod comes."""
    world = make_world(cut(("3g.40gb", 4)) if unit == "mig" else plain())
    number = (MAJORS["nvidia"], 0)
    world.clock.now = 100.0
    open_files(world, number, up_seconds=10.0)
    if unit == "whole":
        world.apply(whole(0))
    world.settle(6)
    resource = THREE if unit == "mig" else "nvidia.com/gpu"
    for _ in range(3):
        holder = world.pod(resource)
        (device,) = world.running[holder]
        world.settle()
        world.finish(holder)
        world.run()
        world.run()
        assert offered(world, device)
        assert not world.agent.observer.observe().usage.held


@UNITS
def test_programs_that_come_and_go_keep_the_device_of_a_pod_that_is_gone_for_no_longer(
    make_world: MakeWorld, unit: str
) -> None:
    """A person watches nvidia-smi: every ten seconds another one has all GPUs open for a moment."""
    world, holder, number = holder_of(make_world, unit)
    with_another_pod(world)
    (device,) = world.running[holder]
    world.settle()
    world.force_delete(holder, seen_by_driver=False)
    world.end_container(holder)
    for _ in range(6):
        open_files(world, number, up_seconds=world.clock.now)
        world.run(1)
        open_files(world)
        for _ in range(9):
            world.run(1)
    assert offered(world, device)
