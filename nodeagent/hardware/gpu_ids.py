"""Decides which device ids concern GPUs, and which of those are in a form that names one.

Every device plugin makes its own ids: around the UUID of a GPU or of a MIG device, or by names of its own, as GKE's
(`nvidia0/gi1`). An id of a GPU resource without a UUID may be any partition of the node: it must never be read as none.
Ids of network cards, virtual machines and other vendors' devices must never count for a GPU.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass

from partitioning.resources import classify

DRA_DRIVER = "gpu.nvidia.com"
"""The name of NVIDIA's DRA driver for GPUs; here the resource of what pods hold by its claims."""
_GPU_RESOURCES = ("nvidia.com/gpu", "nvidia.com/mig-", "mig.das.com/")
"""What NVIDIA's plugin, its forks and GKE's register, and the Dynamic Accelerator Slicer."""
_UUID = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class GpuResources:
    """The extended resources of GPUs, those that a setting lists included."""

    listed: Collection[str] = ()

    def concerns(self, resource: str, device_id: str) -> bool:
        """Whether a device id, of any resource and any device plugin, may name a GPU or a partition of one."""
        return (
            classify(resource) is not None
            or resource.startswith(_GPU_RESOURCES)
            or resource in (DRA_DRIVER, *self.listed)
            or names_a_device(device_id)
        )


KNOWN = GpuResources()


def names_a_device(device_id: str) -> bool:
    """Whether it is built around a UUID. One whose GPU or MIG device is not here concerns no other."""
    return _UUID.search(device_id) is not None


def lasts(device_id: str) -> bool:
    """Whether a pod that had it once has it until it ends: of claims, and of ids that name nothing, it is not known how
    many the kubelet must list, so that it lists none proves nothing."""
    return device_id.startswith(DRA_DRIVER) or not names_a_device(device_id)
