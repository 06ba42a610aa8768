"""When a pod that is gone has ended: held for as long as a process of it is left, free within a minute after that."""

import pytest

from nodeagent.observed.kubelet import CheckpointEntry, NoAnswer
from nodeagent.observed.processes import ProcessTable
from tests.drawn import cells
from tests.nodeagent.halves import THREE, replace_both
from tests.nodeagent.items import pod_json, started
from tests.nodeagent.observed.gone import ENDLESS, HOURS, freed, held, holder_of
from tests.nodeagent.pods_memory import uid_of
from tests.nodeagent.world import World


@pytest.mark.parametrize(
    ("grace_seconds", "agent"),
    cells([0, 30, 3600, ENDLESS], ["stays", "restarts", "is away meanwhile", "is away, and the checkpoint has it"]),
)
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
