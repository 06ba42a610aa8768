"""Where a kubelet serves and keeps its device and pod-resources state, below one kubelet directory.

In goes the kubelet's root directory (`/var/lib/kubelet` on most nodes), out come the paths and the words that the two
APIs compare exactly. Touches no file.
"""

from dataclasses import dataclass
from pathlib import Path

DEVICE_PLUGIN_VERSION = "v1beta1"
HEALTHY = "Healthy"  # compared with exactly this spelling; everything else counts as unhealthy
UNHEALTHY = "Unhealthy"
MAX_SOCKET_PATH_BYTES = 107  # sun_path holds 108 bytes with the closing NUL


@dataclass(frozen=True, slots=True)
class KubeletPaths:
    root: Path

    @property
    def plugin_dir(self) -> Path:
        return self.root / "device-plugins"

    @property
    def registration_socket(self) -> Path:
        return self.plugin_dir / "kubelet.sock"

    @property
    def checkpoint(self) -> Path:
        return self.plugin_dir / "kubelet_internal_checkpoint"

    @property
    def pod_resources_socket(self) -> Path:
        return self.root / "pod-resources" / "kubelet.sock"


def unix_target(socket: Path) -> str:
    """The gRPC address of a unix socket."""
    return f"unix:{socket}"
