"""Describes how NVIDIA's device plugin serves a node: all of its GPUs whole, or each shared into equal MPS replicas.

Takes a number of replicas and how they are named, returns the text of the plugin's config file (version v1), the key of
the ConfigMap that holds it, and the device ids that the kubelet then has. A key is named by its content: config-manager
does not reload a text that changes behind a name that a node uses. Pure; writes nothing.
"""

import hashlib
import re
from dataclasses import dataclass

from partitioning.resources import SHARED, WHOLE

CONFIG_LABEL = "nvidia.com/device-plugin.config"
"""The node label by which config-manager, a sidecar of the plugin, chooses a key of its ConfigMap."""
OWN_KEY = re.compile(r"gpuplan-(whole|mps-\d+)-[0-9a-f]{8}")
KEY_HASH_DIGITS = 8
MPS_ROOT = "/run/nvidia/mps"
MAX_REPLICAS = 48
"""NVIDIA's MPS daemon counts no further, whatever the driver could serve."""
CAPABILITY = (7, 0)
"""Compute capability from which MPS limits the memory of a client."""
MANY_FROM_CAPABILITY, FEW_REPLICAS = (7, 5), 16
"""Below it NVIDIA's daemon allows so many replicas and ends beyond, also on a V100."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """One config for all GPUs of a node."""

    replicas: int = 1
    """1: every GPU whole."""
    renamed: bool = False
    """Replicas are nvidia.com/gpu.shared, else nvidia.com/gpu."""
    mergeable: bool = False
    """A container may request several replicas, and gets the limits of one."""

    @property
    def shared(self) -> bool:
        return self.replicas > 1

    @property
    def resource(self) -> str:
        """Under which name pods request its devices."""
        return SHARED if self.shared and self.renamed else WHOLE

    @property
    def text(self) -> str:
        """The config file. What equals a default of the plugin is left out, an empty block is an error to it."""
        lines = ["version: v1", "flags:", "  migStrategy: none"]
        if self.shared:
            lines += [f"  mpsRoot: {MPS_ROOT}", "sharing:", "  mps:"]
            lines += ["    renameByDefault: true"] if self.renamed else []
            lines += ["    failRequestsGreaterThanOne: false"] if self.mergeable else []
            lines += ["    resources:", f"    - name: {WHOLE}", f"      replicas: {self.replicas}"]
        return "\n".join(lines) + "\n"

    @property
    def digest(self) -> str:
        """SHA-256 of the text, in hexadecimal digits."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def key(self) -> str:
        """Its key in the ConfigMap, and the value of the node label."""
        kind = f"mps-{self.replicas}" if self.shared else "whole"
        return f"gpuplan-{kind}-{self.digest[:KEY_HASH_DIGITS]}"

    def ids(self, gpu_uuid: str) -> frozenset[str]:
        """The kubelet's device ids of one GPU."""
        if not self.shared:
            return frozenset((gpu_uuid,))
        return frozenset(f"{gpu_uuid}::{number}" for number in range(self.replicas))

    def has(self, device_id: str) -> bool:
        """Whether a device id is one of its, of whatever GPU."""
        return device_id in self.ids(device_id.partition("::")[0])


def check(compute_capability: tuple[int, int], replicas: int) -> str | None:
    """None if NVIDIA's plugin can share a GPU so, else one sentence with the number and the remedy."""
    if compute_capability < CAPABILITY:
        major, minor = compute_capability
        return (
            f"MPS limits no memory on a GPU older than Volta (compute capability {major}.{minor}): use whole: {{}}, "
            "or devicePlugin.backend gpuplan"
        )
    limit = MAX_REPLICAS if compute_capability >= MANY_FROM_CAPABILITY else FEW_REPLICAS
    if replicas <= limit:
        return None
    return (
        f"mps.replicas is {replicas}, and NVIDIA's device plugin allows {limit} on this GPU: write {limit} or less, "
        "or use devicePlugin.backend gpuplan"
    )
