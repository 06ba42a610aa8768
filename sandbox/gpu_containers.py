"""Containers that were given a GPU, as the simulated driver and the MPS stand-in see them.

In: container starts and ends from the kubelet stand-in. Out: a process on each device that NVIDIA_VISIBLE_DEVICES
names, and an MPS client where a pipe directory was mounted. A device that is not there keeps the container from
starting, as NVIDIA's container runtime would.
"""

from pathlib import Path

from sandbox.driver import processes
from sandbox.driver.processes import UnknownDeviceError
from sandbox.kubelet import ContainerRecord
from sandbox.mps import clients
from sandbox.mps.clients import NoDaemonError

MEMORY_MIB = 512
NO_DEVICE = ("all", "none", "void")
"""Values that name no device: a container with `all`, such as the agent's own, sees the GPUs and computes on none."""


class GpuContainers:
    """The hooks of one node's runtime."""

    def __init__(self, machine: Path) -> None:
        self._machine = machine

    def container_started(self, container: ContainerRecord) -> str | None:
        """None, or why the container cannot start."""
        devices, pipe = _given(container)
        try:
            for uuid in devices:
                processes.attach(self._machine, uuid, container.pid, MEMORY_MIB, mps=bool(pipe))
            if pipe:
                clients.connect(pipe, container.pid, devices[0], "sleep")
        except UnknownDeviceError as error:
            self.container_stopped(container)
            return f"nvidia-container-cli: device error: {error}: unknown device"
        except NoDaemonError as error:
            self.container_stopped(container)
            return f"MPS client cannot start: {error}"
        return None

    def container_stopped(self, container: ContainerRecord) -> None:
        """Its processes are gone."""
        devices, pipe = _given(container)
        if devices:
            processes.detach(self._machine, container.pid)
        if pipe:
            clients.disconnect(pipe, container.pid)


def _given(container: ContainerRecord) -> tuple[list[str], str]:
    """Device UUIDs and the MPS pipe directory ('' without MPS)."""
    environment = container.request.options.env
    visible = environment.get("NVIDIA_VISIBLE_DEVICES", "")
    devices = [] if visible in NO_DEVICE else [uuid for uuid in visible.split(",") if uuid]
    return devices, environment.get("CUDA_MPS_PIPE_DIRECTORY", "")
