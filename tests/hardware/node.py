"""A sandbox node on the GPU of this machine: real driver, real MPS daemons, and a CUDA program in each container.

Replaces of `SandboxNode` what simulates hardware; kubelet and control plane stay stand-ins. A container is a process
of an ordinary user in namespaces of its own, whose /dev has the device nodes of its CDI names and nothing else, with
the mounts and the environment that they add. Never changes a mode of the GPU, and never resets it.
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
PLAIN_NODES = {"/dev/null": (1, 3), "/dev/zero": (1, 5), "/dev/urandom": (1, 9)}


class CudaContainers(ContainerHooks):
    """Starts and ends the program of each container with a GPU; `lines` is what it has printed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        self._client = folder / CLIENT.name
        shutil.copy(CLIENT, self._client)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def container_started(self, container: ContainerRecord) -> str | None:
        options = container.request.options
        if not options.nodes:
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
                [*OWN_NAMESPACES, "bash", "-c", "\n".join(jail)],
                env={"PATH": os.environ["PATH"], **options.env},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return None

    def container_stopped(self, container: ContainerRecord) -> None:
        self._end(container.container_id)

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
        return os.environ["PATH"]

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
