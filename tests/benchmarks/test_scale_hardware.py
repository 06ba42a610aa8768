"""The simulated hardware and kubelet of the scale runs are as strict as the real ones, as far as the agent can see."""

from dataclasses import replace

import pytest

from benchmarks.scale.hardware import SimulatedDriver, SimulatedKubelet, mig_uuid
from benchmarks.scale.workload import Gpu
from nodeagent.handover.config import Device, DeviceKind, PluginConfig
from nodeagent.hardware.driver import InUseError, RefusedError
from nodeagent.observed.pods import NodePod
from partitioning.layouts import Instance, Layout

UUID = "GPU-00000000-0000-0000-0000-000000000001"
LARGE = Instance(start=0, size=4, profile="4g.40gb")
SMALL = Instance(start=4, size=1, profile="1g.10gb")
RESOURCE = "nvidia.com/mig-1g.10gb"


def machine(*placed: Instance) -> tuple[SimulatedDriver, SimulatedKubelet]:
    kubelet = SimulatedKubelet()
    return SimulatedDriver([Gpu(uuid=UUID, mig=True, layout=Layout.of(placed))], kubelet), kubelet


def device(placed: Instance) -> Device:
    return Device(id=mig_uuid(UUID, placed), resource=RESOURCE, gpu=UUID, kind=DeviceKind.MIG)


def pod(name: str, count: int = 1) -> NodePod:
    return NodePod(uid=name, namespace="load", name=name, containers=(("main", ((RESOURCE, count),)),))


def test_an_instance_is_made_in_two_steps_and_destroyed_in_two() -> None:
    driver, _ = machine(LARGE)
    made = driver.create_gpu_instance(UUID, SMALL)
    half = driver.observe()[0].at(SMALL)
    assert half is not None
    assert half.half_made
    driver.create_compute_instance(UUID, made)
    whole = driver.observe()[0].at(SMALL)
    assert whole is not None
    assert whole.uuid == mig_uuid(UUID, SMALL)
    assert driver.observe()[0].layout == Layout.of([LARGE, SMALL])
    driver.destroy_compute_instance(UUID, whole, whole.compute[0])
    driver.destroy_gpu_instance(UUID, whole)
    assert driver.observe()[0].layout == Layout.of([LARGE])


@pytest.mark.parametrize(
    "placed", [Instance(start=3, size=1, profile="1g.10gb"), LARGE, Instance(start=1, size=4, profile="3g.40gb")]
)
def test_what_does_not_fit_is_refused(placed: Instance) -> None:
    driver, _ = machine(LARGE)
    with pytest.raises(RefusedError):
        driver.create_gpu_instance(UUID, placed)
    assert driver.observe()[0].layout == Layout.of([LARGE])


def test_what_a_container_uses_is_not_destroyed() -> None:
    driver, kubelet = machine(SMALL)
    kubelet.load(PluginConfig.of([device(SMALL)]))
    assert kubelet.admit(pod("a")) == ""
    held = driver.observe()[0].at(SMALL)
    assert held is not None
    with pytest.raises(InUseError):
        driver.destroy_compute_instance(UUID, held, held.compute[0])
    kubelet.release(("load", "a"))
    driver.destroy_compute_instance(UUID, held, held.compute[0])


def test_pods_get_devices_that_are_advertised_and_free_or_are_refused() -> None:
    kubelet = SimulatedKubelet()
    other = Instance(start=5, size=1, profile="1g.10gb")
    config = PluginConfig.of([device(SMALL), device(other)], [mig_uuid(UUID, other)])
    assert kubelet.load(config) == {RESOURCE: True}
    assert kubelet.allocatable().ids == {RESOURCE: (mig_uuid(UUID, SMALL),)}
    assert kubelet.admit(pod("two", count=2)) == f"2 {RESOURCE} requested, 1 listed, 1 free"
    assert kubelet.admit(pod("a")) == kubelet.admit(pod("a")) == ""
    assert kubelet.admit(pod("b")) == f"1 {RESOURCE} requested, 1 listed, 0 free"
    assert kubelet.listed().pods == {("load", "a"): {"main": {RESOURCE: (mig_uuid(UUID, SMALL),)}}}


def test_a_resource_that_is_gone_is_counted_as_none() -> None:
    kubelet = SimulatedKubelet()
    kubelet.load(PluginConfig.of([device(SMALL)]))
    assert kubelet.counts() == {RESOURCE: 1}
    kubelet.load(PluginConfig())
    assert kubelet.counts() == {RESOURCE: 0}


def test_what_is_drained_is_listed_and_neither_counted_nor_given_to_a_pod() -> None:
    kubelet = SimulatedKubelet()
    config = replace(PluginConfig.of([device(SMALL)]), drained=(mig_uuid(UUID, SMALL),))
    assert kubelet.load(config) == {RESOURCE: True}
    assert (kubelet.counts(), kubelet.capacities()) == ({RESOURCE: 0}, {RESOURCE: 1})
    assert kubelet.allocatable().ids == {RESOURCE: ()}
    assert kubelet.admit(pod("a")) == f"1 {RESOURCE} requested, 0 listed, 0 free"
