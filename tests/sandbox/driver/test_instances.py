"""GPU and compute instances through the real binding: the driver's refusals by case, order of destruction, handles."""

import ctypes

import pytest

from sandbox.driver import processes
from tests import incidents
from tests.builders.models import MODELS
from tests.quirks import Quirks
from tests.sandbox.driver.calls import (
    code_of,
    compute_instances,
    compute_profiles,
    create,
    create_gpu_instance,
    destroy_all,
    gpu,
    gpu_instances,
    mig_devices,
    mig_handle,
    nvml,
    place,
    placements,
    profiles,
)
from tests.sandbox.driver.conftest import Simulate

INVALID, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, IN_USE, NO_ROOM = 2, 3, 4, 6, 19, 23


def test_with_the_mode_off_nothing_is_cut(simulate: Simulate) -> None:
    simulate("A100-40GB")
    device = gpu()
    assert code_of(create_gpu_instance, device, 19) == NOT_SUPPORTED
    assert code_of(nvml.nvmlDeviceGetGpuInstanceById, device, 1) == NOT_FOUND
    assert gpu_instances(device, profiles(device)[19]) == []
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(device) == 0
    assert placements(device, 9) == [(0, 4), (4, 4)]  # the header: answers with the mode off too
    assert len(profiles(device)) == 7


def test_old_drivers_tell_no_profiles_while_the_mode_is_off(simulate: Simulate) -> None:
    path = simulate("H100-80GB", driver_version="535.261.03")
    assert profiles(gpu()) == {}
    incidents.enable_mig(path)
    assert len(profiles(gpu())) == 7


def test_refusals_of_creation(simulate: Simulate) -> None:
    simulate("A100-40GB", mig_enabled=True)
    device = gpu()
    at = nvml.nvmlDeviceCreateGpuInstanceWithPlacement
    assert code_of(create_gpu_instance, device, 77) == INVALID
    assert code_of(at, device, 14, place(3, 2)) == INVALID  # not a placement of the profile
    assert code_of(at, device, 14, place(2, 1)) == INVALID  # wrong size
    assert create(device, 9, (0, 4)).gpu_instance == 1
    assert code_of(at, device, 14, place(2, 2)) == NO_ROOM
    assert code_of(at, device, 9, place(0, 4)) == NO_ROOM  # exactly this instance is there already
    assert code_of(create_gpu_instance, device, 0) == NO_ROOM


def test_lookups_that_find_nothing(simulate: Simulate) -> None:
    simulate("A100-40GB", mig_enabled=True)
    device = gpu()
    create(device, 9, (0, 4))
    assert code_of(nvml.nvmlDeviceGetGpuInstanceById, device, 9) == NOT_FOUND
    assert code_of(nvml.nvmlDeviceGetMigDeviceHandleByIndex, device, 3) == NOT_FOUND
    assert code_of(nvml.nvmlDeviceGetHandleByIndex, 9) == INVALID
    assert code_of(nvml.nvmlDeviceGetGpuInstanceProfileInfo, device, 5) == NOT_SUPPORTED  # a gap in the constants
    assert code_of(nvml.nvmlDeviceGetGpuInstanceProfileInfo, device, 0x11) == INVALID  # past their end
    count = ctypes.c_uint(7)
    assert code_of(nvml.nvmlDeviceGetGpuInstances, device, 19, None, ctypes.byref(count)) == INVALID
    instance = nvml.nvmlDeviceGetGpuInstanceById(device, 1)
    assert code_of(nvml.nvmlGpuInstanceGetComputeInstances, instance, 2, None, ctypes.byref(count)) == INVALID
    assert code_of(nvml.nvmlGpuInstanceGetComputeInstanceById, instance, 4) == NOT_FOUND


def test_destruction_goes_from_the_inside_out(simulate: Simulate) -> None:
    simulate("A100-40GB", mig_enabled=True)
    device = gpu()
    create(device, 9, (0, 4))
    instance = nvml.nvmlDeviceGetGpuInstanceById(device, 1)
    assert code_of(nvml.nvmlGpuInstanceDestroy, instance) == IN_USE
    for compute in compute_instances(instance):
        nvml.nvmlComputeInstanceDestroy(compute)
    assert mig_devices(device) == []  # a GPU instance alone is no MIG device, and still holds its place
    assert code_of(nvml.nvmlDeviceCreateGpuInstanceWithPlacement, device, 14, place(0, 2)) == NO_ROOM
    nvml.nvmlGpuInstanceDestroy(instance)
    assert [create(device, 14, (start, 2)).gpu_instance for start in (0, 2)] == [3, 4]


def test_handles_of_destroyed_instances_are_stale(simulate: Simulate) -> None:
    simulate("A100-40GB", mig_enabled=True)
    device = gpu()
    before = create(device, 9, (0, 4))
    mig = mig_handle(before.uuid)
    instance = nvml.nvmlDeviceGetGpuInstanceById(device, 1)
    compute = nvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0)
    destroy_all(device)
    assert code_of(nvml.nvmlDeviceGetUUID, mig) == INVALID
    assert code_of(nvml.nvmlGpuInstanceGetInfo, instance) == INVALID
    assert code_of(nvml.nvmlComputeInstanceDestroy, compute) == INVALID
    after = create(device, 5, (0, 4))  # another profile in the same place: same UUID, as the MIG guide shows
    assert after.uuid == before.uuid
    assert after.name.endswith("4g.20gb")
    assert code_of(nvml.nvmlDeviceGetUUID, mig) == INVALID  # the old handle stays stale all the same


def test_clients_hold_what_they_run_on(simulate: Simulate) -> None:
    path = simulate("A100-40GB", mig_enabled=True)
    device = gpu()
    created = create(device, 19)
    processes.attach(path, created.uuid, 4242, 100, hidden=True)
    assert nvml.nvmlDeviceGetComputeRunningProcesses(device) == []  # DCGM and its like show in no list
    instance = nvml.nvmlDeviceGetGpuInstanceById(device, created.gpu_instance)
    compute = nvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0)
    assert code_of(nvml.nvmlComputeInstanceDestroy, compute) == IN_USE
    processes.detach(path, 4242)
    nvml.nvmlComputeInstanceDestroy(compute)


def test_the_first_instance_needs_an_idle_gpu(simulate: Simulate) -> None:
    path = simulate("H100-80GB", mig_enabled=True)
    device = gpu()
    processes.attach(path, nvml.nvmlDeviceGetUUID(device), 77, 10)
    assert code_of(create_gpu_instance, device, 19) == IN_USE
    processes.detach(path, 77)
    create(device, 19)


def test_compute_instances_share_a_gpu_instance(simulate: Simulate) -> None:
    simulate("A100-40GB", mig_enabled=True)
    device = gpu()
    instance = create_gpu_instance(device, 5)
    made = [nvml.nvmlGpuInstanceCreateComputeInstance(instance, profile) for profile in (0, 1)]
    assert [nvml.nvmlComputeInstanceGetInfo(compute).placement.start for compute in made] == [0, 2]
    assert code_of(nvml.nvmlGpuInstanceCreateComputeInstance, instance, 3) == NO_ROOM
    assert code_of(nvml.nvmlGpuInstanceCreateComputeInstance, instance, 4) == NOT_SUPPORTED
    assert code_of(nvml.nvmlGpuInstanceCreateComputeInstance, instance, 40) == INVALID
    names = [device.name for device in mig_devices(device)]
    assert names == ["NVIDIA A100-SXM4-40GB MIG 1c.4g.20gb", "NVIDIA A100-SXM4-40GB MIG 2c.4g.20gb"]
    assert len({device.uuid for device in mig_devices(device)}) == 2


@pytest.mark.parametrize(
    ("key", "profile_id", "compute_ids"),
    [
        ("A100-40GB", 19, [0]),
        ("A100-40GB", 14, [0, 1]),
        ("A100-40GB", 9, [0, 1, 2]),
        ("A100-40GB", 5, [0, 1, 3]),
        ("A100-40GB", 0, [0, 1, 2, 3, 4]),
        ("H100-80GB", 15, [0, 7]),  # one slice with double memory and more multiprocessors
        ("A100-40GB", 15, [0]),
        ("H100-80GB", 20, [0]),
    ],
)
def test_compute_profiles(simulate: Simulate, key: str, profile_id: int, compute_ids: list[int]) -> None:
    simulate(key, mig_enabled=True)
    instance = create_gpu_instance(gpu(), profile_id)
    offered = compute_profiles(instance)
    assert [profile.id for profile in offered] == compute_ids
    assert offered[-1].name == f"MIG {profiles(gpu())[profile_id].name.removeprefix('MIG ')}"


@pytest.mark.parametrize(
    ("profile_id", "most", "least"),
    [
        (15, 7, 0),
        (0, 4, 8),
    ],  # 1g.20gb has both by nature, and the second one is listed first; 7g.80gb by the quirk, last
)
def test_compute_variants_offer_a_second_full_size_profile_with_fewer_multiprocessors(
    simulate: Simulate, profile_id: int, most: int, least: int
) -> None:
    simulate("H100-80GB", mig_enabled=True, quirks=Quirks(compute_variants=True))
    instance = create_gpu_instance(gpu(), profile_id)
    offered = {profile.id: profile for profile in compute_profiles(instance)}
    assert offered[most].sliceCount == offered[least].sliceCount
    assert offered[most].multiprocessorCount > offered[least].multiprocessorCount
    compute = nvml.nvmlGpuInstanceCreateComputeInstance(instance, least)
    assert nvml.nvmlComputeInstanceGetInfo(compute).profileId == least


@pytest.mark.parametrize("mig", [False, True])
def test_the_device_of_a_compute_instance_is_the_gpu_or_the_mig_device(simulate: Simulate, mig: bool) -> None:
    simulate("H100-80GB", mig_enabled=True, quirks=Quirks(names_mig_device=mig))
    made = create(gpu(), 9, (0, 4))
    instance = nvml.nvmlDeviceGetGpuInstanceById(gpu(), made.gpu_instance)
    compute = nvml.nvmlGpuInstanceGetComputeInstanceById(instance, made.compute_instance)
    uuid = nvml.nvmlDeviceGetUUID(nvml.nvmlComputeInstanceGetInfo(compute).device)
    assert uuid == (made.uuid if mig else nvml.nvmlDeviceGetUUID(gpu()))


def test_without_quirks_the_device_of_a_compute_instance_is_the_gpu(simulate: Simulate) -> None:
    simulate("H100-80GB", mig_enabled=True, instances=[("7g.80gb", 0)])
    compute = compute_instances(nvml.nvmlDeviceGetGpuInstanceById(gpu(), 0))[0]
    assert nvml.nvmlDeviceGetUUID(nvml.nvmlComputeInstanceGetInfo(compute).device) == nvml.nvmlDeviceGetUUID(gpu())


def test_mig_device_indexes_may_have_gaps(simulate: Simulate) -> None:
    simulate(
        "H100-80GB", mig_enabled=True, instances=[("3g.40gb", 0), ("3g.40gb", 4)], quirks=Quirks(mig_index_gaps=True)
    )
    assert [code_of(nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu(), index) for index in range(5)] == [NOT_FOUND] * 5
    last = [nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu(), index) for index in (5, 6)]
    assert len({nvml.nvmlDeviceGetUUID(handle) for handle in last}) == 2
    assert code_of(nvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu(), 7) == INVALID
    assert len(mig_devices(gpu())) == 2


def test_gpus_without_mig_say_so(simulate: Simulate) -> None:
    simulate("T4")
    device = gpu()
    assert code_of(nvml.nvmlDeviceGetMigMode, device) == NOT_SUPPORTED
    assert code_of(create_gpu_instance, device, 19) == NOT_SUPPORTED
    assert code_of(nvml.nvmlDeviceGetGpuInstanceProfileInfo, device, 0) == NOT_SUPPORTED
    assert code_of(nvml.nvmlDeviceGetMigDeviceHandleByIndex, device, 0) == NOT_SUPPORTED
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(device) == 0


@pytest.mark.parametrize("key", ["A30-24GB", "A100-40GB", "H100-80GB", "B200-180GB", "RTX-PRO-6000-BLACKWELL-96GB"])
def test_the_catalogue_is_what_nvml_tells(simulate: Simulate, key: str) -> None:
    simulate(key, mig_enabled=True)
    catalogued = MODELS[key]
    found = profiles(gpu())
    assert sorted(found) == sorted(spec.profile_id for spec in catalogued.profiles)
    for spec in catalogued.profiles:
        info = found[spec.profile_id]
        assert (info.name, info.sliceCount, info.instanceCount) == (
            f"MIG {spec.name}",
            spec.compute_slices,
            spec.max_instances,
        )
        assert placements(gpu(), spec.profile_id) == [(start, spec.size) for start in spec.starts]
        assert spec.memory_mib in (None, info.memorySizeMB)
