"""A sandbox node on the GPU of this machine: real driver, real MPS daemons, and a CUDA program in each container.

Replaces of `SandboxNode` what simulates hardware; kubelet and control plane stay stand-ins. A container is a process
of an ordinary user in namespaces and a cgroup of its own, whose /dev has the device nodes of its CDI names and nothing
else, with the mounts and the environment that they add. The MPS daemons are in the cgroup of the pod that runs them.
Never changes a mode of the GPU, and never resets it.
"""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml

from sandbox.driver import toolkit
from sandbox.kubelet.runtime import ContainerHooks, ContainerRecord
from sandbox.node import SandboxNode

CLIENT = Path(__file__).with_name("cuda_client.py")
MOST_MIB_VARIABLE = "CLIENT_MIB"
CLIENT_SECONDS = 300
ORDINARY_USER = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
OWN_NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--ipc", "--net", "--uts")
CGROUPS = Path("/sys/fs/cgroup/kubepods")
IN_CGROUP = ("sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"')
MPS_POD, MPS_CONTROL = "gpuplan-mps", "nvidia-cuda-mps-control"
PLAIN_NODES = {"/dev/null": (1, 3), "/dev/zero": (1, 5), "/dev/urandom": (1, 9)}


class CudaContainers(ContainerHooks):
    """Starts and ends the program of each container with a GPU; `lines` is what it has printed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        self._client = folder / CLIENT.name
        shutil.copy(CLIENT, self._client)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.unkillable = set[str]()
        """Pods whose programs outlive them."""

    def container_started(self, container: ContainerRecord) -> str | None:
        options = container.request.options
        cgroup = _cgroup(container)
        cgroup.mkdir(parents=True)
        if not options.nodes:
            plain = [*IN_CGROUP, str(cgroup), "sleep", str(CLIENT_SECONDS)]
            self._running[container.container_id] = subprocess.Popen(plain, start_new_session=True)
            return None
        jail = ["set -e", "mount -t tmpfs -o mode=755 tmpfs /dev", "mkdir -p /dev/shm /dev/nvidia-caps"]
        nodes = [(path, *numbers) for path, numbers in PLAIN_NODES.items()]
        nodes += [(node.path, node.major, node.minor) for node in options.nodes]
        jail += [f"mknod -m 666 {shlex.quote(path)} c {major} {minor}" for path, major, minor in nodes]
        # The driver's files are those of this machine, where every program finds them.
        for mount in (mount for mount in options.mounts if Path(mount.host_path).is_dir()):
            source, target = shlex.quote(mount.host_path), shlex.quote(mount.container_path)
            jail.append(f"mount --bind {source} {target}")
            if mount.read_only:
                jail.append(f"mount -o remount,bind,ro {target}")
        most_mib = options.env.get(MOST_MIB_VARIABLE, "256")
        jail.append(
            shlex.join(["exec", *ORDINARY_USER, sys.executable, str(self._client), most_mib, str(CLIENT_SECONDS)])
        )
        with self._log(container.request.pod).open("wb") as log:
            self._running[container.container_id] = subprocess.Popen(
                [*IN_CGROUP, str(cgroup), *OWN_NAMESPACES, "bash", "-c", "\n".join(jail)],
                env={"PATH": os.environ["PATH"], **options.env},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return None

    def container_stopped(self, container: ContainerRecord) -> None:
        if container.request.pod in self.unkillable:
            return
        self._end(container.container_id)
        for folder in (_cgroup(container), _cgroup(container).parent):
            # A process that was killed may take a moment; the kubelet tries again, too.
            with contextlib.suppress(OSError):
                folder.rmdir()

    def close(self) -> None:
        for container_id in list(self._running):
            self._end(container_id)

    def _end(self, container_id: str) -> None:
        process = self._running.pop(container_id, None)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)

    def lines(self, pod: str) -> list[dict[str, Any]]:
        """Of the pod's latest container; a line that is no JSON is an error of the jail."""
        log = self._log(pod)
        texts = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
        return [json.loads(text) if text.startswith("{") else {"error": text} for text in texts]

    def _log(self, pod: str) -> Path:
        return self._folder / f"{pod}.log"


def _cgroup(container: ContainerRecord) -> Path:
    """As kubelet and runtime name it."""
    return CGROUPS / f"pod{container.request.pod_uid}" / container.container_id


class RealNode(SandboxNode):
    clients: CudaContainers

    def _containers(self) -> ContainerHooks:
        self.clients = CudaContainers(self.root / "containers")
        self.root.chmod(0o755)
        return self.clients

    def _install_driver(self) -> None:
        binding: Any = pynvml
        binding.nvmlInit()
        toolkit.install(self.root / "driver", self._cdi, str(binding.nvmlSystemGetDriverVersion()))
        binding.nvmlShutdown()

    def _programs(self) -> str:
        """The control program enters its pod's cgroup first, as in a container; a daemon and its servers inherit it."""
        folder, program = self.root / "bin", shutil.which(MPS_CONTROL)
        folder.mkdir(exist_ok=True)
        entered = f"cat {self.root}/{MPS_POD}"
        (folder / MPS_CONTROL).write_text(f'#!/bin/sh\necho $$ > "$({entered})/cgroup.procs"\nexec {program} "$@"\n')
        (folder / MPS_CONTROL).chmod(0o755)
        return f"{folder}:{os.environ['PATH']}"

    def mps_pod_runs(self) -> bool:
        """Once it does, the control program knows its cgroup."""
        found = [one for one in self.runtime.containers() if one.request.pod == MPS_POD and one.started_at is not None]
        for container in found:
            (self.root / MPS_POD).write_text(str(_cgroup(container)))
        return bool(found)

    def _on_hardware(self, *program: str) -> tuple[str, list[str]]:
        return program[0], list(program[1:])

    @property
    def _proc(self) -> Path:
        return Path("/proc")

    def _agent_settings(self) -> dict[str, Any]:
        # No mode of the machine's GPUs is changed here.
        kept = {"refreshHostDevices": False, "mpsExclusiveProcess": False}
        return {**super()._agent_settings(), **kept}

    def stop(self) -> None:
        super().stop()
        self.clients.close()
        # As with the end of their pod: to the next module's node they would be programs of no pod, with the GPU open.
        with contextlib.suppress(FileNotFoundError):
            for pid in Path((self.root / MPS_POD).read_text(), "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
