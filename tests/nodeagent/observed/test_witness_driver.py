"""The driver as the last witness: processes, clients and compute instances that no list shows stop a destruction."""

from typing import Any

import pynvml

from nodeagent.hardware.driver import GpuInstance
from sandbox.driver import processes
from tests.nodeagent.conftest import MakeWorld, cut
from tests.nodeagent.halves import replace_both
from tests.nodeagent.items import mig
from tests.nodeagent.world import World

NVML: Any = pynvml


def test_a_process_that_comes_last_stops_the_destruction(world: World) -> None:
    replace_both(world)
    world.run()
    uuid = world.gpu().instances[0].uuid
    assert uuid is not None
    processes.attach(world.machine, uuid, 99, 1)

    world.settle()

    assert world.layout() == "3g.40gb at 0"
    assert world.found() == ("WaitingForRelease", "WaitingForRelease")
    assert "process 99 runs on it" in world.gpu_status()["message"]


def test_a_process_that_is_started_again_and_again_makes_few_writes(world: World) -> None:
    replace_both(world)
    world.run()
    uuid = world.gpu().instances[0].uuid
    assert uuid is not None
    written, dues = [], []
    for pid in range(100, 400):
        processes.attach(world.machine, uuid, pid, 1)
        before = world.effect.done.count("status")
        dues.append(world.run(1.0))
        written += [pid] * (world.effect.done.count("status") - before)
        processes.detach(world.machine, pid)

    settled = [pid for pid in written if pid >= 110]
    assert len(settled) <= 5, "one a minute"
    named = int(world.gpu_status()["message"].split("process ")[1].split()[0])
    assert settled[-1] - 5 <= named <= settled[-1], "as it was read last: a reading is used for a few seconds"
    assert max(dues[-100:]) == min(dues[-100:]) == 10.0, "and the passes become fewer"


def test_a_client_that_only_the_driver_knows_is_information(world: World) -> None:
    uuid = world.gpu().instances[0].uuid
    assert uuid is not None
    processes.attach(world.machine, uuid, 99, 1, hidden=True)
    replace_both(world)

    world.settle()

    assert world.layout() == "3g.40gb at 0, 3g.40gb at 4", "the driver refused one, so neither is torn down"
    assert world.found() == ("WaitingForRelease", "HeldOpen")
    assert world.condition("Stalled")["status"] == "False"

    processes.detach(world.machine, 99)
    world.settle(90)
    assert world.layout() == "7g.80gb at 0"


def test_foreign_compute_instances_are_left_alone(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 4)))
    gpu = world.driver.observe_gpu(0)
    world.driver.destroy_compute_instance(gpu.uuid, gpu.instances[0], gpu.instances[0].compute[0])
    handle = NVML.nvmlDeviceGetHandleByIndex(0)
    instance = NVML.nvmlDeviceGetGpuInstanceById(handle, gpu.instances[0].id)
    NVML.nvmlGpuInstanceCreateComputeInstance(instance, 0)
    world.apply(mig(0, ("7g.80gb", 0)))

    world.settle()

    assert world.layout() == "3g.40gb at 4"
    assert "compute instances that gpuplan did not create" in world.gpu_status()["message"]
    assert world.advertised() == {}


def test_a_pod_that_holds_a_foreign_compute_instance_is_named_with_the_remedy(
    make_world: MakeWorld,
) -> None:
    """As one that NVIDIA's device plugin gave out before the node was gpuplan's."""
    world = make_world(cut(("3g.40gb", 4)))
    gpu = world.driver.observe_gpu(0)
    world.driver.destroy_compute_instance(gpu.uuid, gpu.instances[0], gpu.instances[0].compute[0])
    instance = NVML.nvmlDeviceGetGpuInstanceById(NVML.nvmlDeviceGetHandleByIndex(0), gpu.instances[0].id)
    NVML.nvmlGpuInstanceCreateComputeInstance(instance, 0)
    (made,) = world.driver.observe_gpu(0).instances[0].compute
    pod = world.pod_of_other_plugin("nvidia.com/mig-1c.3g.40gb", made.uuid, made.uuid)
    world.apply(mig(0, ("7g.80gb", 0)))
    world.settle()

    assert world.layout() == "3g.40gb at 4"
    message = world.gpu_status()["message"]
    assert "compute instances that gpuplan did not create, held by pod default/p1" in message
    assert "once nothing uses them, destroy them with nvidia-smi mig -dci" in message

    world.finish(pod)
    world.settle(40)
    assert "did not create: once nothing uses them, destroy them" in world.gpu_status()["message"]


def test_an_instance_that_an_administrator_made_after_the_verification_is_not_destroyed(world: World) -> None:
    replace_both(world)
    remade: list[str] = []

    def recut(gpu_uuid: str, instance: GpuInstance) -> None:
        if not remade and instance.placed.start == 0:
            remade.append(str(instance.placed))
            assert world.recut_by_hand(gpu_uuid, instance)

    world.before_destroy = recut
    while not remade:
        world.run()

    assert remade == ["3g.40gb at 0"]
    assert "4g.40gb at 0" in world.layout()
    assert world.found() == ("Failed", "DriverError")
    assert "GPU instance 1 is 4g.40gb at 0 by now" in world.gpu_status()["message"]
    sample = world.metrics.registry.get_sample_value("gpuplan_agent_errors_total", {"kind": "driver-changed"})
    assert sample == 1.0

    world.by_hand.clear()
    world.settle()
    assert world.layout() == "7g.80gb at 0"
