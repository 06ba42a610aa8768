"""A restart of the node: MIG instances are gone, and the device plugin runs long before the agent has observed them."""

from typing import Any

import pynvml

from tests import faults, incidents
from tests.nodeagent.conftest import MakeWorld, empty, plain
from tests.nodeagent.halves import THREE
from tests.nodeagent.items import mig, whole

NVML: Any = pynvml


def test_no_pod_gets_an_instance_of_the_last_boot_before_the_agent_has_observed_it(make_world: MakeWorld) -> None:
    world = make_world(*empty(), plain())
    world.apply(mig(0, ("3g.40gb", 0)), whole(1))
    world.settle()

    world.reboot()

    assert world.advertised() == {"nvidia.com/gpu": 1}, "a card outlives the boot, its instances do not"
    early = world.pod(THREE)
    assert world.pods[early]["status"]["phase"] == "Failed"

    incidents.enable_mig(world.machine)
    world.restart()
    world.settle()
    assert world.advertised() == {THREE: 1, "nvidia.com/gpu": 1}
    assert world.found() == ("Ready", "Confirmed")
    later = world.pod(THREE)
    assert world.pods[later]["status"]["phase"] == "Running"


def test_a_gpu_that_cannot_be_read_after_a_restart_has_no_healthy_instances(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply(mig(0, ("3g.40gb", 0)))
    world.settle()
    world.reboot()
    faults.inject(world.machine, "nvmlDeviceGetName", times=faults.ALWAYS)
    world.restart()

    world.settle()

    assert world.advertised() == {}
    assert world.found() == ("Failed", "Unhealthy")


def test_a_pod_whose_instance_the_restart_took_is_named(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply(mig(0, ("3g.40gb", 0)))
    world.settle()
    key = world.pod(THREE)
    (held,) = world.running[key]
    world.apply(mig(0, ("7g.80gb", 0)))

    world.reboot()
    incidents.enable_mig(world.machine)
    world.restart()
    world.settle()
    world.wait(61)  # no pod's process is seen: the records of the last boot are doubted by time

    assert world.layout() == "7g.80gb at 0"
    assert world.found() == ("Ready", "Confirmed")
    sentence = f"pod default/{key[1]} holds {held}, which no longer exists on this node: delete the pod"
    assert world.gpu_status()["message"] == sentence

    world.finish(key)
    world.settle()
    assert "message" not in world.gpu_status()
