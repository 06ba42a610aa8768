"""What the labels of a Node tell about NVIDIA's GPU Operator: which of its parts must not run, and when it upgrades.

Takes the labels of a Node, returns facts and sentences. A label `nvidia.com/gpu.deploy.<part>` places a part of the
operator; the operator writes one that is absent, and keeps any other value. Writes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

PREFIX = "nvidia.com/gpu.deploy."
DEVICE_PLUGIN, MIG_MANAGER = f"{PREFIX}device-plugin", f"{PREFIX}mig-manager"
RIVALS = (DEVICE_PLUGIN, MIG_MANAGER)
"""Parts that give out or partition the GPUs that gpuplan does."""
OFF = "false"
PAUSED = "paused-for-"
"""A value with this is put back by the operator itself, at the end of an upgrade or a change of MIG instances."""


def runs(labels: Mapping[str, str]) -> bool:
    """The operator has placed parts on this node."""
    return any(key.startswith(PREFIX) for key in labels)


def switched_on(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Labels of parts that must not run on an enabled node. One that is absent places nothing."""
    return tuple(key for key in RIVALS if labels.get(key, OFF) != OFF)


def at_work(labels: Mapping[str, str]) -> bool:
    """The operator has paused one of these parts, and puts its label back."""
    return any(PAUSED in labels.get(key, "") for key in RIVALS)


def switch_off(node: str, keys: tuple[str, ...]) -> str:
    """The command for people."""
    return f"kubectl label node {node} {' '.join(f'{key}={OFF}' for key in keys)} --overwrite"
