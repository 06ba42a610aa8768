"""Where GPUs are on the PCI bus."""

import pynvml

from sandbox.driver.abi.handles import Handle, any_device, device_handle
from sandbox.driver.abi.pointers import Address, get_text, put_pointer, put_struct
from sandbox.driver.abi.registry import HANDLE, OUT, reads
from sandbox.driver.boards import board_of, pci_bus
from sandbox.driver.state import Machine
from sandbox.driver.status import Refused, Status, require


@reads(HANDLE, OUT)
def nvmlDeviceGetPciInfo_v3(machine: Machine, handle: Handle, info: Address) -> None:
    """Without the number of the subsystem."""
    gpu = any_device(machine, handle).gpu
    bus = pci_bus(gpu)
    answer = pynvml.nvmlPciInfo_t()
    answer.busIdLegacy, answer.busId = f"0000:{bus:02X}:00.0".encode(), f"00000000:{bus:02X}:00.0".encode()
    answer.bus, answer.pciDeviceId = bus, board_of(gpu).pci_device_id
    put_struct(info, answer)


@reads(OUT, OUT)
def nvmlDeviceGetHandleByPciBusId_v2(machine: Machine, bus_id: Address, handle: Address) -> None:
    domain, _, rest = get_text(bus_id, pynvml.NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE).partition(":")
    for index, gpu in enumerate(machine["gpus"]):
        if rest.lower() == f"{pci_bus(gpu):02x}:00.0" and not domain.strip("0"):
            require(not gpu["lost"], Status.GPU_IS_LOST)
            put_pointer(handle, device_handle(index))
            return
    raise Refused(Status.NOT_FOUND)
