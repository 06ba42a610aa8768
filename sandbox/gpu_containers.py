"""Shows containers with a GPU to the simulated driver and to MPS.

Takes container starts and ends from the kubelet stand-in; makes a process on each device that the container has, by its
device nodes or by NVIDIA_VISIBLE_DEVICES, and an MPS client where a pipe directory was mounted. A device that is not
there keeps the container from starting, as NVIDIA's container runtime would.
"""

from collections.abc import Iterable
from pathlib import Path

from sandbox.cdi import Node
from sandbox.driver import processes
from sandbox.driver.compute_instances import mig_device_uuid, mig_devices
from sandbox.driver.machine import observe
from sandbox.driver.processes import UnknownDeviceError
from sandbox.driver.procfs import MAJORS, capability_minor, hide_process, proc_of, show_process
from sandbox.kubelet.runtime import ContainerHooks, ContainerRecord
from sandbox.mps import clients
from sandbox.mps.clients import NoDaemonError

MEMORY_MIB = 512
NO_DEVICE = ("all", "none", "void")
"""Values that name no device: a container with `all`, such as the agent's own, sees the GPUs and computes on none."""


class GpuContainers(ContainerHooks):
    """The hooks of one node's runtime."""

    def __init__(self, machine: Path) -> None:
        self._machine = machine
        show_process(proc_of(machine), 1)

    def container_started(self, container: ContainerRecord) -> str | None:
        """None, or why the container cannot start."""
        devices, pipe = self._given(container)
        show_process(proc_of(self._machine), container.pid, container.request.pod_uid)
        if container.request.options.nodes and not devices:
            self.container_stopped(container)
            return "CUDA finds no device: the container has no device node of one"
        try:
            for uuid in devices:
                processes.attach(self._machine, uuid, container.pid, MEMORY_MIB, mps=bool(pipe))
            if pipe:
                clients.connect(pipe, container.pid, devices[0])
        except UnknownDeviceError as error:
            self.container_stopped(container)
            return f"nvidia-container-cli: device error: {error}: unknown device"
        except NoDaemonError as error:
            self.container_stopped(container)
            return f"MPS client cannot start: {error}"
        return None

    def container_stopped(self, container: ContainerRecord) -> None:
        """Its processes are gone."""
        hide_process(proc_of(self._machine), container.pid)
        devices, pipe = self._given(container)
        if devices or container.request.options.nodes:
            processes.detach(self._machine, container.pid)
        if pipe:
            clients.disconnect(pipe, container.pid)

    def _given(self, container: ContainerRecord) -> tuple[list[str], str]:
        """Device UUIDs and the MPS pipe directory on the host ('' without MPS)."""
        options = container.request.options
        visible = options.env.get("NVIDIA_VISIBLE_DEVICES", "")
        devices = [] if visible in NO_DEVICE else [uuid for uuid in visible.split(",") if uuid]
        if options.nodes:
            devices += self._by_nodes(options.nodes)
        pipe = options.env.get("CUDA_MPS_PIPE_DIRECTORY", "")
        return devices, next((mount.host_path for mount in options.mounts if mount.container_path == pipe), pipe)

    def _by_nodes(self, nodes: Iterable[Node]) -> list[str]:
        """What CUDA finds: MIG devices of which both capabilities can be opened, and GPUs without MIG."""
        numbers = {(node.major, node.minor) for node in nodes}
        found = []
        for gpu in observe(self._machine)["gpus"]:
            if (MAJORS["nvidia"], gpu["minor"]) not in numbers:
                continue
            if not gpu["mig_mode"]:
                found.append(gpu["uuid"])
            for instance, compute in mig_devices(gpu):
                minors = (capability_minor(gpu["minor"], instance["id"], key) for key in (None, compute["id"]))
                if all((MAJORS["nvidia-caps"], minor) in numbers for minor in minors):
                    found.append(mig_device_uuid(gpu, instance, compute))
        return found
