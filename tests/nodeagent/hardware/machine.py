"""A simulated machine with the NVML driver on it."""

from pathlib import Path
from typing import Any

import pynvml

from nodeagent.hardware.driver import (
    ObservedGpu,
)
from nodeagent.hardware.nvml import NvmlDriver
from partitioning.layouts import Instance

NVML: Any = pynvml


class Machine:
    """A simulated machine and the driver under test on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.driver = NvmlDriver()

    def gpu(self, index: int = 0) -> ObservedGpu:
        return self.driver.observe()[index]


def make(machine: Machine, placed: Instance, index: int = 0) -> int:
    uuid = machine.gpu(index).uuid
    identity = machine.driver.create_gpu_instance(uuid, placed)
    machine.driver.create_compute_instance(uuid, identity)
    return identity
