"""Names where a kubelet serves and keeps its device and pod-resources state, below one kubelet directory.

Takes the kubelet's root directory (`/var/lib/kubelet` on most nodes), returns the paths and the strings that the two
APIs compare exactly. Touches no file.
"""

from pathlib import Path

DEVICE_PLUGIN_VERSION = "v1beta1"
HEALTHY = "Healthy"  # compared with exactly this spelling; everything else counts as unhealthy
UNHEALTHY = "Unhealthy"
MAX_SOCKET_PATH_BYTES = 107  # sun_path holds 108 bytes with the closing NUL


class KubeletPaths:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.plugin_dir = root / "device-plugins"
        self.registration_socket = self.plugin_dir / "kubelet.sock"
        self.checkpoint = self.plugin_dir / "kubelet_internal_checkpoint"
        self.claims = root / "dra_manager_state"
        self.pod_resources_socket = root / "pod-resources" / "kubelet.sock"

    def driver_checkpoint(self, driver: str) -> Path:
        """Where a DRA driver keeps which claims it has prepared."""
        return self.root / "plugins" / driver / "checkpoint.json"


def unix_target(socket: Path) -> str:
    """The gRPC address of a unix socket."""
    return f"unix:{socket}"
