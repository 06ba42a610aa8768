"""When a pod that is gone has ended: held for as long as a process of it is left, free within a minute after that."""

from collections.abc import Collection
from dataclasses import replace

import pytest

from nodeagent.handover.config import read_ledger_mark, write_ledger
from nodeagent.hardware.nvml import NvmlDriver
from nodeagent.observed.kubelet import CheckpointEntry, NoAnswer
from nodeagent.observed.processes import DeviceNumber, Process, Processes, ProcessTable
from sandbox.driver.procfs import MAJORS, capability_minor
from tests.nodeagent.conftest import MakeWorld, cut, plain
from tests.nodeagent.halves import THREE, replace_both
from tests.nodeagent.items import mig, pod_json, started, whole
from tests.nodeagent.pods_memory import uid_of
from tests.nodeagent.world import World

ENDLESS = 2**63 - 1
HOURS = 7200.0
ZERO = (1, 5)
Key = tuple[str, str]


def holder_of(world: World, grace_seconds: int = ENDLESS, **spec: object) -> Key:
    """A pod with one of two halves, which the plan no longer has."""
    key = world.pod(THREE)
    world.pods[key]["spec"].update({"terminationGracePeriodSeconds": grace_seconds, **spec})
    world.run()
    return key


def held(world: World) -> bool:
    return world.layout().count("3g.40gb") == 1


def freed(world: World) -> bool:
    return world.layout() == "7g.80gb at 0"


@pytest.mark.parametrize("grace_seconds", [0, 30, 3600, ENDLESS])
@pytest.mark.parametrize("agent", ["stays", "restarts", "is away meanwhile", "is away, and the checkpoint has it"])
def test_it_is_held_while_a_process_is_left_and_free_within_a_minute(
    world: World, grace_seconds: int, agent: str
) -> None:
    holder = holder_of(world, grace_seconds)
    entries = world.kubelet.entries
    world.force_delete(holder, seen_by_driver=False)
    if agent != "stays":
        world.restart()
    if "checkpoint" in agent:
        world.kubelet.entries = entries
    replace_both(world)

    world.settle()
    for _ in range(3):
        world.wait(HOURS)
        assert held(world)
        assert "is held by pod default/p1" in world.gpu_status()["message"]

    world.end_container(holder)
    world.run(29)
    world.settle(1)
    assert held(world), "another container of the pod may be about to start"
    world.wait(2)
    assert freed(world)


def test_a_long_grace_that_no_record_has_is_no_reason_to_destroy(world: World) -> None:
    """Bound and force-deleted while the agent is away: ledger and checkpoint do not know the period."""
    holder = world.pod(THREE)
    world.force_delete(holder, seen_by_driver=False)
    world.restart()
    replace_both(world)

    world.wait(HOURS)
    world.wait(HOURS)
    assert held(world)
    assert "no pod was observed with it yet" in world.gpu_status()["message"]
    world.end_container(holder)
    world.wait(61)
    assert freed(world)


@pytest.mark.parametrize("shown", [True, False])
def test_a_device_whose_pod_has_not_started_stays_held_by_time(world: World, shown: bool) -> None:
    """Its process is about to come: none is there yet."""
    key = ("default", "starting")
    (device, *_) = world.kubelet.devices[THREE]
    world.plugin.allocate(device, THREE, world.clock.now)
    if shown:
        world.pods[key] = pod_json(key, THREE, 1, uid=uid_of(50))
        world.kubelet.known.add(key)
        world.kubelet.held[key] = {"main": {THREE: (device,)}}
        world.run()
        world.pods.pop(key)
        world.forget(key)
    replace_both(world)

    world.run(55)
    world.settle(2)
    assert device in {instance.uuid for instance in world.gpu().instances}
    world.wait(62)
    assert freed(world)


def test_a_container_that_starts_again_within_the_time_keeps_it(world: World) -> None:
    holder = holder_of(world)
    ids = world.running[holder]
    world.force_delete(holder, seen_by_driver=False)
    replace_both(world)
    for _ in range(4):
        world.end_container(holder)
        world.run(25)
        world.settle(2)
        world.running[holder] = ids
        world.settle(2)
    assert held(world)


@pytest.mark.parametrize("doubt", ["the API server does not answer", "the watch is wrong", "the kubelet lists it"])
def test_no_process_alone_is_no_end(world: World, doubt: str) -> None:
    holder = holder_of(world)
    raw = world.pods[holder]
    if doubt == "the API server does not answer":
        world.api_refuses = "503"
    world.force_delete(holder, seen_by_driver=False)
    world.end_container(holder)
    world.run()
    if doubt == "the watch is wrong":
        world.pods_late = True
        world.pods[holder] = raw
    if doubt == "the kubelet lists it":
        world.kubelet.known.add(holder)
    replace_both(world)

    world.wait(HOURS)
    assert held(world)

    world.pods.pop(holder, None)
    world.kubelet.known.discard(holder)
    world.api_refuses, world.pods_late = "", False
    world.wait(31)
    assert freed(world)


def test_a_pod_in_restart_back_off_is_not_gone(world: World) -> None:
    holder = holder_of(world)
    world.end_container(holder)
    replace_both(world)
    world.wait(HOURS)

    assert held(world)


def test_a_pod_of_the_same_name_is_another_pod(world: World) -> None:
    key = holder_of(world)
    first = world.recreate(key)
    replace_both(world)
    world.wait(HOURS)
    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"
    world.end_container(first)
    world.wait(31)
    assert held(world)
    world.finish(key)
    world.settle()
    assert freed(world)


@pytest.mark.parametrize("reason", ["no host PIDs", "no cgroups of pods", "a runtime class", "no processes"])
def test_where_processes_prove_nothing_time_decides_as_before(world: World, reason: str) -> None:
    spec = {"runtimeClassName": "kata-qemu"} if reason == "a runtime class" else {}
    holder = holder_of(world, 600, **spec)
    world.force_delete(holder, seen_by_driver=False)
    world.run()
    world.end_container(holder)
    if reason == "no host PIDs":
        world.kubelet.same_processes = False
    if reason == "no processes":
        world.tree.end(1)
    if reason == "no cgroups of pods":
        world.pods["kube-system", "proxy"] = {
            **pod_json(("kube-system", "proxy"), "cpu", 1, uid=uid_of(77)),
            "status": started(),
        }
        world.kubelet.known.add(("kube-system", "proxy"))
    replace_both(world)

    world.run(620)
    world.settle(5)
    assert "default/p1" in world.gpu_status()["message"]
    world.run(20)
    assert world.agent.observer.observe().pods.vanished == ()


def test_what_cannot_be_read_now_is_waited_for(world: World) -> None:
    holder = holder_of(world, 0)
    world.force_delete(holder, seen_by_driver=False)
    world.end_container(holder)
    world.run()
    (world.tree.root / "1" / "stat").write_text("garbage")
    replace_both(world)

    world.wait(HOURS)
    assert held(world)


def test_a_crowd_of_a_tenants_processes_that_hides_what_is_left_is_named(world: World) -> None:
    holder = holder_of(world, 0)
    world.force_delete(holder, seen_by_driver=False)
    why = f"reading the node's processes took longer than 5 s, and 9000 of 9100 were of pod UID {uid_of(88)}"
    setattr(world, "scan", lambda: NoAnswer(reason=why))  # noqa: B010
    replace_both(world)
    world.wait(HOURS)

    assert held(world)
    left = "and it is not known what is left of pod default/p1, which is gone"
    assert f"{why}, {left}: no pod gets " in world.gpu_status()["message"]


def test_open_files_of_another_pod_that_cannot_be_read_keep_nothing(world: World) -> None:
    holder = holder_of(world, 0)
    world.tree.start(4711, uid_of(88), files=())
    (world.tree.root / "4711" / "fd").rmdir()
    (world.tree.root / "4711" / "fd").touch()
    world.pods["default", "other"] = pod_json(("default", "other"), "cpu", 1, uid=uid_of(88))
    world.force_delete(holder, seen_by_driver=False)
    world.end_container(holder)
    replace_both(world)
    world.wait(31)
    world.wait(31)
    assert freed(world)


def open_files(
    world: World,
    *numbers: tuple[int, int],
    began_at: float = 0.0,
    up_seconds: float = 0.0,
    pods: tuple[str, ...] = (),
) -> None:
    """Another process than the pod's has these open."""
    process = Process(pid=4711, program="dockerd", pods=frozenset(pods), began_at=began_at, up_seconds=up_seconds)

    def holders(asked: object) -> tuple[Process, ...] | NoAnswer:
        assert isinstance(asked, frozenset)
        opened = asked.intersection(numbers)
        return (replace(process, opened=opened),) if opened and not pods else ()

    world.holders = holders  # type: ignore[method-assign,assignment]


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


@pytest.mark.parametrize("unit", ["mig", "whole"])
@pytest.mark.parametrize("end", ["finished", "finished, then deleted", "deleted by force"])
@pytest.mark.parametrize(
    ("cgroup", "keeps"),
    [
        ("0::/system.slice/nvidia-dcgm.service", False),
        (f"0::/system.slice/docker-{'a' * 64}.scope", True),
        ("0::/user.slice/user-0.slice/session-3.scope", True),
    ],
)
def test_a_service_that_systemd_has_restarted_meanwhile_keeps_no_device(
    make_world: MakeWorld, unit: str, end: str, cgroup: str, keeps: bool
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
    for _ in range(4):
        world.wait(15)
    offered = [i for ids in world.kubelet.devices.values() for i in ids]
    assert (device in offered) is not keeps

    world.tree.end(opener)
    for _ in range(4):
        world.wait(15)
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
    for _ in range(6):
        world.wait(15)
    assert world.waiting[late] == (device,)

    open_files(world)
    for _ in range(4):
        world.wait(15)
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


def test_no_pod_gets_it_and_no_container_starts_with_it_while_a_process_is_left(world: World) -> None:
    holder = world.pod(THREE)
    (device,) = world.running[holder]
    world.settle()
    world.force_delete(holder, seen_by_driver=False)

    world.settle()
    assert device not in world.kubelet.devices[THREE]
    assert world.kubelet.capacity[THREE] == 2, "it is Unhealthy, not withdrawn"
    assert list(world.plugin.config.occupied) == [device]
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle()
    message = world.gpu_status()["message"]
    assert "process 5001 (python, since 1970-01-12T13:46:40Z) is left of pod default/p1, which is gone: no" in message
    late = world.pod(THREE)
    assert world.running[late] != (device,)

    world.end_container(holder)
    world.wait(31)
    assert not list(world.plugin.config.occupied)
    assert device in world.kubelet.devices[THREE]


def test_the_process_is_said_to_be_of_the_pod_that_is_gone_where_another_has_the_device_by_now(world: World) -> None:
    world.pod(THREE)
    gone = world.pod(THREE)
    device = world.running[gone]
    world.settle()
    world.force_delete(gone, seen_by_driver=False)
    late = world.pod(THREE)
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle()
    assert world.running.get(late, device) == device
    message = world.gpu_status()["message"]
    assert "is left of pod default/p2, which is gone: no pod gets 3g.40gb at 0 until it has ended" in message


def test_a_pod_that_the_checkpoint_alone_knows_is_named_by_its_uid(world: World) -> None:
    world.pod(THREE)
    world.settle()
    gone = world.pod(THREE)
    entries = world.kubelet.entries
    world.force_delete(gone, seen_by_driver=False)
    world.restart()
    world.kubelet.entries = entries
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.settle()
    world.wait(100)
    assert f"is left of pod UID {uid_of(2)}, which is gone: no pod gets 3g.40gb at 0" in world.gpu_status()["message"]


def test_a_process_is_named_though_a_later_pod_of_the_device_is_gone_as_well(world: World) -> None:
    world.pod(THREE)
    gone = world.pod(THREE)
    world.settle()
    world.force_delete(gone, seen_by_driver=False)
    late = world.pod(THREE)
    world.settle()
    world.force_delete(late, seen_by_driver=False)
    world.end_container(late)
    world.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    world.run(1)
    assert "is left of pod default/p2, which is gone" in world.gpu_status()["message"]


def test_a_finished_pod_whose_process_is_left_has_not_ended(world: World) -> None:
    holder = holder_of(world, 30)
    world.pods[holder]["status"] = started("Failed")
    world.forget(holder)
    replace_both(world)
    world.wait(HOURS)
    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"
    world.end_container(holder)
    world.wait(31)
    assert freed(world)


def test_a_static_pod_is_known_by_the_hash_of_its_file(world: World) -> None:
    hash_ = "0123456789abcdef0123456789abcdef"
    holder = world.pod(THREE)
    device = world.running[holder]
    world.pods[holder]["metadata"]["annotations"] = {
        "kubernetes.io/config.hash": hash_,
        "kubernetes.io/config.mirror": hash_,
    }
    world.kubelet.entries = (CheckpointEntry(pod_uid=hash_, ids=device),)
    world.run()
    world.running.pop(holder)
    world.tree.start(4711, hash_, files=())
    world.running["node", "static"] = tuple(device)
    world.forget(holder)
    world.pods.pop(holder)
    replace_both(world)
    world.wait(HOURS)
    assert held(world)

    world.tree.end(4711)
    world.running.clear()
    world.wait(31)
    world.end_container(holder)
    world.settle()
    assert freed(world)


def test_nothing_is_read_while_nothing_is_gone(world: World) -> None:
    world.pod(THREE)
    world.settle()
    read: list[str] = []

    def scan() -> ProcessTable | NoAnswer:
        read.append("processes")
        return ProcessTable()

    world.scan = scan  # type: ignore[method-assign]
    world.wait(60)

    assert read == []
