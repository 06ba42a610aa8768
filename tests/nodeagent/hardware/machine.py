"""A simulated machine with the NVML driver on it."""

import ctypes
from pathlib import Path
from typing import Any

import pynvml

from nodeagent.hardware.driver import (
    ObservedGpu,
)
from nodeagent.hardware.nvml import NvmlDriver
from partitioning.layouts import Instance
from sandbox.driver.abi.handles import decode

NVML: Any = pynvml


class Machine:
    """A simulated machine and the driver under test on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.driver = NvmlDriver()

    def gpu(self, index: int = 0) -> ObservedGpu:
        return self.driver.observe()[index]


def parent(device: Any) -> Any:
    """The GPU of a MIG device; a GPU is its own."""
    return NVML.nvmlDeviceGetHandleByIndex(decode(ctypes.cast(device, ctypes.c_void_p).value).gpu)


def make(machine: Machine, placed: Instance, index: int = 0) -> int:
    uuid = machine.gpu(index).uuid
    identity = machine.driver.create_gpu_instance(uuid, placed)
    machine.driver.create_compute_instance(uuid, identity)
    return identity
