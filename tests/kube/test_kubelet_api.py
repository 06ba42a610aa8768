"""The generated modules are fresh, and the wire is the kubelet's: service names and field numbers."""

import subprocess
import sys

import pytest

from kube.kubelet_api import deviceplugin_pb2, podresources_pb2

FIELDS = [  # the official numbers, message by message
    (deviceplugin_pb2.RegisterRequest, {"version": 1, "endpoint": 2, "resource_name": 3, "options": 4}),
    (deviceplugin_pb2.DevicePluginOptions, {"pre_start_required": 1, "get_preferred_allocation_available": 2}),
    (deviceplugin_pb2.Device, {"ID": 1, "health": 2, "topology": 3}),
    (
        deviceplugin_pb2.ContainerPreferredAllocationRequest,
        {"available_deviceIDs": 1, "must_include_deviceIDs": 2, "allocation_size": 3},
    ),
    (
        deviceplugin_pb2.ContainerAllocateResponse,
        {"envs": 1, "mounts": 2, "devices": 3, "annotations": 4, "cdi_devices": 5},
    ),
    (deviceplugin_pb2.Mount, {"container_path": 1, "host_path": 2, "read_only": 3}),
    (deviceplugin_pb2.PreStartContainerRequest, {"devices_ids": 1}),
    (podresources_pb2.GetPodResourcesRequest, {"pod_name": 1, "pod_namespace": 2}),
    (podresources_pb2.AllocatableResourcesResponse, {"devices": 1, "cpu_ids": 2, "memory": 3}),
    (podresources_pb2.ContainerDevices, {"resource_name": 1, "device_ids": 2, "topology": 3}),
    (
        podresources_pb2.ContainerResources,
        {"name": 1, "devices": 2, "cpu_ids": 3, "memory": 4, "dynamic_resources": 5},
    ),
    (podresources_pb2.DynamicResource, {"claim_name": 2, "claim_namespace": 3, "claim_resources": 4}),
    (
        podresources_pb2.ClaimResource,
        {"cdi_devices": 1, "driver_name": 2, "pool_name": 3, "device_name": 4, "share_id": 5},
    ),
]

METHODS = {
    "v1beta1.Registration": ["Register"],
    "v1beta1.DevicePlugin": [
        "GetDevicePluginOptions",
        "ListAndWatch",
        "GetPreferredAllocation",
        "Allocate",
        "PreStartContainer",
    ],
    "v1.PodResourcesLister": ["List", "GetAllocatableResources", "Get"],
}


@pytest.mark.parametrize(("message", "numbers"), FIELDS, ids=lambda value: getattr(value, "__name__", ""))
def test_field_numbers_are_the_official_ones(message: type, numbers: dict[str, int]) -> None:
    assert {f.name: f.number for f in message.DESCRIPTOR.fields} == numbers  # type: ignore[attr-defined] # generated


def test_services_have_the_official_names() -> None:
    found = {
        service.full_name: [method.name for method in service.methods]
        for module in (deviceplugin_pb2, podresources_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
    }
    assert found == METHODS


def test_committed_modules_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kube.kubelet_api", "--check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
