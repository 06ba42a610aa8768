"""The kubelet plugin of NVIDIA's DRA driver as a process on a simulated machine, at an API server and a kubelet.

Takes the program, a machine, a kubeconfig and the kubelet's folder; starts it as its chart does and ends it by SIGTERM,
as the kubelet would. Its ResourceSlices stay at the API server, as those of the real one do until a kubelet takes them
away.
"""

from pathlib import Path

from tests.e2e.rig.nvidia import driver_root
from tests.e2e.rig.nvidia.host import Host
from tests.e2e.rig.nvidia.plugin import Process

DRIVER = "gpu.nvidia.com"
DYNAMIC = "DynamicMIG"
"""Feature gate by which it makes an instance for each claim, and destroys those that it does not know."""
BEGINS = "Traverse GPU devices"


class DraDriver:
    """One node's. Its record of prepared claims outlives it."""

    def __init__(self, program: Path, host: Host, node: str, kubeconfig: Path, kubelet: Path, *gates: str) -> None:
        flags = {
            "node-name": node,
            "kubeconfig": kubeconfig,
            "container-driver-root": driver_root.install(host),
            "kubelet-registrar-directory-path": kubelet / "plugins_registry",
            "kubelet-plugins-directory-path": kubelet / "plugins",
            "cdi-root": host.folder / "dra-cdi",
            "nvidia-cdi-hook-path": "/usr/bin/nvidia-cdi-hook",
            "image-name": "unused",
            "feature-gates": ",".join(f"{gate}=true" for gate in gates),
        }
        self._command = (str(program), *(f"--{name}={value}" for name, value in flags.items()), "-v=4")
        self.gates = gates
        self._host = host
        self._process = self._made()
        self.record = kubelet / "plugins" / DRIVER / "checkpoint.json"
        """What it has prepared."""
        (kubelet / "plugins_registry").mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        self._process = self._made()
        self._process.start()

    def stop(self) -> None:
        self._process.stop()

    @property
    def ended(self) -> str | None:
        return self._process.ended

    def said(self) -> str:
        return self._process.said()

    def _made(self) -> Process:
        return Process(self._host, self._host.folder / "dra.log", BEGINS, *self._command)
