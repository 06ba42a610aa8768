"""When List lies: nothing that a container still uses is destroyed, and the status says what stands in the way."""

from typing import Any

import pynvml
import pytest

from nodeagent.observed.kubelet import CheckpointEntry
from nodeagent.plugin.config import Allocation, write_ledger
from nodeagent.plugin.ledger import Ledger
from sandbox.driver import processes
from tests.nodeagent.conftest import MakeWorld, cut
from tests.nodeagent.items import NODE, RUNNING, mig
from tests.nodeagent.world import World

NVML: Any = pynvml
THREE = "nvidia.com/mig-3g.40gb"


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    found = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)))
    found.settle(4)
    return found


def want_all(world: World) -> None:
    """A plan that needs both instances gone."""
    world.apply(mig(0, ("7g.80gb", 0)))


def test_a_force_deleted_pod_keeps_its_device_for_its_grace_and_slack(world: World) -> None:
    holder = world.pod(THREE)
    world.run()
    world.force_delete(holder, seen_by_driver=False)
    want_all(world)

    world.settle(20)
    assert world.layout().count("3g.40gb") == 1
    assert world.found() == ("WaitingForRelease", "WaitingForRelease")
    assert "is held by pod default/p1" in world.gpu_status()["message"]

    world.clock.now += 60
    world.end_container(holder)
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_it_keeps_it_over_a_restart_of_the_agent_too(world: World) -> None:
    holder = world.pod(THREE)
    world.run()
    world.force_delete(holder, seen_by_driver=False)
    world.restart()
    want_all(world)

    world.settle(20)
    assert "is held by pod default/p1" in world.gpu_status()["message"]

    world.clock.now += 60
    world.end_container(holder)
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_a_vanished_pod_that_was_never_listed_makes_its_resource_unknown(world: World) -> None:
    key = ("default", "early")
    world.pods[key] = {
        "metadata": {"namespace": "default", "name": "early", "uid": "early-uid"},
        "spec": {"nodeName": NODE, "containers": [{"name": "main", "resources": {"limits": {THREE: "1"}}}]},
        "status": {"phase": "Pending"},
    }
    world.run()
    del world.pods[key]
    want_all(world)

    world.settle()
    assert world.found() == ("WaitingForRelease", "UseUnknown")
    assert "default/early left the API before it ended" in world.gpu_status()["message"]

    world.clock.now += 61
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_a_phase_that_somebody_patched_frees_nothing(world: World) -> None:
    holder = world.pod(THREE)
    world.run()
    world.pods[holder]["status"] = {"phase": "Failed", "startTime": "t", "containerStatuses": [RUNNING]}
    world.forget(holder)
    want_all(world)

    world.settle()
    assert world.layout().count("3g.40gb") >= 1
    assert "default/p1" in world.gpu_status()["message"]

    # The kubelet lists it again, without devices, for good.
    world.kubelet.known.add(holder)
    world.pods[holder]["status"] = {"phase": "Running", "startTime": "t", "containerStatuses": [RUNNING]}
    world.settle()
    assert "default/p1" in world.gpu_status()["message"]

    world.finish(holder)
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_a_failed_pod_that_nobody_lists_does_not_blind_the_node_for_good(world: World) -> None:
    holder = world.pod(THREE)
    world.run()
    world.end_container(holder)
    world.forget(holder)
    world.pods[holder]["status"] = {"phase": "Failed", "startTime": "t", "containerStatuses": [RUNNING]}
    want_all(world)
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
    write_ledger(world.state.plugin, ())
    want_all(world)
    world.running.clear()
    world.end_container(holder)

    world.settle()

    assert world.layout() == "3g.40gb at 4"
    assert world.partitions() == ["mig-3g.40gb Unknown"]
    message = world.gpu_status()["message"]
    assert "pod default/p1 asks for 1 of nvidia.com/mig-3g.40gb and the kubelet lists 0" in message


def test_plain_init_containers_hold_unseen(world: World) -> None:
    key = ("default", "with-init")
    init = {"name": "init", "resources": {"limits": {THREE: "1"}}}
    world.pods[key] = {
        "metadata": {"namespace": "default", "name": "with-init", "uid": "i"},
        "spec": {"nodeName": NODE, "initContainers": [init], "containers": [{"name": "main"}]},
        "status": {"phase": "Running", "startTime": "t"},
    }
    world.kubelet.known.add(key)
    want_all(world)

    world.settle()

    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"
    assert "init containers of pod default/with-init hold 1 more" in world.gpu_status()["message"]


@pytest.mark.parametrize("age_seconds", [None, 5.0, 59.0])
def test_a_young_kubelet_is_not_believed(world: World, age_seconds: float | None) -> None:
    world.kubelet.age_seconds = age_seconds
    want_all(world)

    world.settle()
    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"
    assert world.partitions() == ["mig-3g.40gb Unknown", "mig-3g.40gb Unknown"]

    world.kubelet.age_seconds = 60.0
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_a_kubelet_that_does_not_list_a_pod_it_has_handled_is_not_believed(world: World) -> None:
    key = ("kube-system", "proxy")
    world.pods[key] = {
        "metadata": {"namespace": "kube-system", "name": "proxy", "uid": "x"},
        "spec": {"nodeName": NODE, "containers": [{"name": "main"}]},
        "status": {"phase": "Running", "startTime": "t"},
    }
    want_all(world)

    world.settle()
    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"
    assert "does not list pod kube-system/proxy" in world.gpu_status()["message"]

    world.kubelet.known.add(key)
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_a_listed_pod_that_the_api_does_not_show_yet_makes_everything_unknown(world: World) -> None:
    world.kubelet.known.add(("default", "new"))
    want_all(world)

    world.settle()

    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"
    assert "lists pod default/new, which the API does not show" in world.gpu_status()["message"]


def test_a_rate_limited_answer_is_no_answer(world: World) -> None:
    world.kubelet.refuses = "pod-resources List: RESOURCE_EXHAUSTED: rejected by rate limit"
    want_all(world)

    world.settle()
    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"

    world.kubelet.refuses = ""
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_an_answered_allocate_counts_until_its_pod_is_seen_or_time_is_over(world: World) -> None:
    uuid = next(device.id for device in world.plugin.config.devices)
    write_ledger(world.state.plugin, [Allocation(id=uuid, resource=THREE, at=5.0)])
    want_all(world)

    world.settle(20)
    assert world.layout().count("3g.40gb") == 1
    assert "the device plugin handed it out" in world.gpu_status()["message"]

    world.clock.now += 60
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_a_ledger_that_the_plugin_lost_makes_everything_unknown_for_a_while(world: World) -> None:
    world.state.plugin.ledger.write_text("{")
    assert "kept aside" in Ledger(world.state.plugin).problem
    want_all(world)

    world.settle(20)
    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4"
    assert "lost its record of Allocates" in world.gpu_status()["message"]

    world.clock.now += 60
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_a_settled_allocate_stays_settled_over_a_restart(world: World) -> None:
    holder = world.pod(THREE)
    world.run()
    world.finish(holder)
    world.run()
    world.restart()
    want_all(world)

    world.settle(5)

    assert world.layout() == "7g.80gb at 0"


def test_the_checkpoint_speaks_for_a_pod_that_nobody_saw_end(world: World) -> None:
    uuid = next(device.id for device in world.plugin.config.devices)
    world.kubelet.entries = (CheckpointEntry(pod_uid="unknown", ids=(uuid,)),)
    want_all(world)

    world.settle(20)
    assert world.layout().count("3g.40gb") == 1
    assert "the kubelet's checkpoint has it" in world.gpu_status()["message"]

    world.clock.now += 60
    world.settle()
    assert world.layout() == "7g.80gb at 0"


def test_the_checkpoint_of_an_ended_pod_is_ignored_over_a_restart_too(world: World) -> None:
    holder = world.pod(THREE)
    world.run()
    world.finish(holder)
    world.run()
    del world.pods[holder]
    world.run()
    world.restart()
    assert world.kubelet.entries
    want_all(world)

    world.settle(5)

    assert world.layout() == "7g.80gb at 0"


def test_a_process_that_comes_last_stops_the_destruction(world: World) -> None:
    want_all(world)
    world.run()
    uuid = world.gpu().instances[0].uuid
    assert uuid is not None
    processes.attach(world.machine, uuid, 99, 1)

    world.settle()

    assert world.layout() == "3g.40gb at 0"
    assert world.found() == ("WaitingForRelease", "WaitingForRelease")
    assert "process 99 runs on it" in world.gpu_status()["message"]


def test_a_client_that_only_the_driver_knows_is_information(world: World) -> None:
    uuid = world.gpu().instances[0].uuid
    assert uuid is not None
    processes.attach(world.machine, uuid, 99, 1, hidden=True)
    want_all(world)

    world.settle()

    assert world.layout() == "3g.40gb at 0"
    assert world.found() == ("WaitingForRelease", "WaitingForRelease")
    assert world.condition("Stalled")["status"] == "False"

    processes.detach(world.machine, 99)
    world.settle(90)
    assert world.layout() == "7g.80gb at 0"


def test_foreign_compute_instances_are_left_alone(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4)))
    gpu = world.gpu()
    world.driver.destroy_compute_instance(gpu.uuid, gpu.instances[0].id, 0)
    handle = NVML.nvmlDeviceGetHandleByIndex(0)
    instance = NVML.nvmlDeviceGetGpuInstanceById(handle, gpu.instances[0].id)
    NVML.nvmlGpuInstanceCreateComputeInstance(instance, 0)
    world.apply(mig(0, ("7g.80gb", 0)))

    world.settle()

    assert world.layout() == "3g.40gb at 4"
    assert "somebody else" in world.gpu_status()["message"]
    assert world.offered() == {}
