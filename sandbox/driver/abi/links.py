"""How GPUs are linked: by nothing but the PCI bus of one processor, without NVLink or a fabric."""

import pynvml

from sandbox.driver.abi.handles import Handle, any_device, parent_device
from sandbox.driver.abi.pointers import Address, put_int, put_struct
from sandbox.driver.abi.registry import HANDLE, OUT, UINT, reads
from sandbox.driver.boards import board_of
from sandbox.driver.state import Machine
from sandbox.driver.status import Refused, Status, require

FIRST_WITH_FABRIC = (9, 0)


@reads(HANDLE, OUT)
def nvmlDeviceGetGpuFabricInfo(machine: Machine, handle: Handle, info: Address) -> None:
    model = board_of(any_device(machine, handle).gpu).model
    require(model.compute_capability >= FIRST_WITH_FABRIC, Status.NOT_SUPPORTED)
    answer = pynvml.c_nvmlGpuFabricInfo_t()
    answer.state = pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED
    put_struct(info, answer)


@reads(HANDLE, HANDLE, OUT)
def nvmlDeviceGetTopologyCommonAncestor(machine: Machine, one: Handle, other: Handle, level: Address) -> None:
    for handle in (one, other):
        parent_device(machine, handle)
    put_int(level, pynvml.NVML_TOPOLOGY_NODE)


@reads(HANDLE, UINT, OUT)
def nvmlDeviceGetNvLinkState(machine: Machine, handle: Handle, link: int, active: Address) -> None:  # noqa: ARG001 - C signature
    parent_device(machine, handle)
    raise Refused(Status.NOT_SUPPORTED)
