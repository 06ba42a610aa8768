"""Pods as witnesses when List lies: what one may still hold is not destroyed, and the status names the pod."""

from nodeagent.handover.config import read_ledger_mark, write_ledger
from tests.builders.objects import container, pod
from tests.nodeagent.conftest import MakeWorld, cut
from tests.nodeagent.halves import THREE, replace_both
from tests.nodeagent.items import NODE, started
from tests.nodeagent.world import World


def test_a_force_deleted_pod_keeps_its_device_for_as_long_as_it_runs(world: World) -> None:
    holder = world.pod(THREE)
    world.run()
    world.force_delete(holder, seen_by_driver=False)
    replace_both(world)

    world.settle(20)
    assert world.layout().count("3g.40gb") == 1
    assert world.found() == ("WaitingForRelease", "WaitingForRelease")
    assert "is held by pod default/p1" in world.gpu_status()["message"]

    world.wait(3600)
    assert "is held by pod default/p1" in world.gpu_status()["message"]

    world.end_container(holder)
    world.wait(31)
    assert world.layout() == "7g.80gb at 0"


def test_a_force_deleted_pod_keeps_its_device_over_a_restart_of_the_agent_too(world: World) -> None:
    holder = world.pod(THREE)
    world.run()
    world.force_delete(holder, seen_by_driver=False)
    world.restart()
    replace_both(world)

    world.settle(20)
    assert "is held by pod default/p1" in world.gpu_status()["message"]

    world.wait(3600)
    assert "is held by pod default/p1" in world.gpu_status()["message"]

    world.end_container(holder)
    world.wait(31)
    assert world.layout() == "7g.80gb at 0"


def test_a_vanished_pod_that_was_never_listed_makes_its_resource_unknown(world: World) -> None:
    key = ("default", "early")
    world.pods[key] = pod("early", requests={THREE: 1}, node=NODE)
    world.run()
    del world.pods[key]
    replace_both(world)

    world.settle()
    assert world.found() == ("WaitingForRelease", "UseUnknown")
    assert "default/early left the API before it ended" in world.gpu_status()["message"]

    world.clock.now += 61
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_a_patched_phase_frees_nothing(world: World) -> None:
    holder = world.pod(THREE)
    world.run()
    world.pods[holder]["status"] = started("Failed")
    world.forget(holder)
    replace_both(world)

    world.settle()
    assert world.layout().count("3g.40gb") >= 1
    assert "default/p1" in world.gpu_status()["message"]

    # The kubelet lists it again, without devices, permanently.
    world.kubelet.known.add(holder)
    world.pods[holder]["status"] = started()
    world.settle()
    assert "default/p1" in world.gpu_status()["message"]

    world.finish(holder)
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_a_failed_pod_that_is_not_listed_does_not_blind_the_node_permanently(world: World) -> None:
    holder = world.pod(THREE)
    world.run()
    world.end_container(holder)
    world.forget(holder)
    world.pods[holder]["status"] = started("Failed")
    replace_both(world)
    world.settle(20)
    assert world.layout().count("3g.40gb") >= 1
    assert "default/p1" in world.gpu_status()["message"]

    world.clock.now += 60
    world.settle()

    assert world.layout() == "7g.80gb at 0"


def test_a_shortfall_makes_one_resource_unknown_and_names_the_pod(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4), ("1g.10gb", 0)))
    world.settle(3)
    holder = world.pod(THREE)
    world.kubelet.held.clear()  # an Allocate in flight: listed, no devices
    world.kubelet.entries = ()
    world.plugin.allocations.clear()
    write_ledger(world.state.plugin, (), read_ledger_mark(world.state.plugin))
    replace_both(world)
    world.running.clear()
    world.end_container(holder)

    world.settle()

    assert world.layout() == "3g.40gb at 4"
    assert world.partitions() == ["mig-3g.40gb Unknown"]
    message = world.gpu_status()["message"]
    assert "pod default/p1 requests 1 of nvidia.com/mig-3g.40gb and the kubelet lists 0" in message


def test_plain_init_containers_hold_devices_unlisted(world: World) -> None:
    key = ("default", "with-init")
    init = container("init", {THREE: 1})
    world.pods[key] = pod(
        "with-init", requests={}, node=NODE, initContainers=[init], status={"phase": "Running", "startTime": "t"}
    )
    world.kubelet.known.add(key)
    replace_both(world)

    world.settle()

    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"
    assert "init containers of pod default/with-init hold 1 more" in world.gpu_status()["message"]
