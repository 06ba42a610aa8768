"""What the labels of a Node mean for NVIDIA's GPU Operator: which of its parts must not run, and when it upgrades.

Takes the labels of a Node, returns facts and sentences. A label `nvidia.com/gpu.deploy.<part>` places a part of the
operator; the operator writes one that is absent, and keeps any other value. Writes nothing.
"""

from collections.abc import Mapping

PREFIX = "nvidia.com/gpu.deploy."
DEVICE_PLUGIN, MIG_MANAGER = f"{PREFIX}device-plugin", f"{PREFIX}mig-manager"
RIVALS = (DEVICE_PLUGIN, MIG_MANAGER)
"""Parts that give out or partition the GPUs that gpuplan does."""
MONITORS = (f"{PREFIX}dcgm", f"{PREFIX}dcgm-exporter")
"""Parts that hold GPUs open without a process that the driver lists."""
OPERANDS = f"{PREFIX}operands"
"""Places no part: with `false` the operator takes all of them, and their labels, off the node."""
OFF, ON = "false", "true"
PAUSED = "paused-for-"
"""A value with this is put back by the operator itself, at the end of an upgrade or a change of MIG instances."""
UPGRADE_STATE, UNLOADING = "nvidia.com/gpu-driver-upgrade-state", "pod-restart-required"
"""The operator's upgrade of the driver: in this state its pod is replaced, and pods with GPUs were evicted before."""


LETS_GO, COMES_BACK = (" ".join([*(f"{key}={value}" for key in MONITORS), "--overwrite"]) for value in (OFF, ON))
"""What `kubectl label node NODE` needs to take these parts off a node, and back."""


def runs(labels: Mapping[str, str]) -> bool:
    """The operator has placed parts on this node."""
    return any(key.startswith(PREFIX) for key in labels.keys() - {OPERANDS})


def switched_on(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Labels of parts that must not run on an enabled node. One that is absent places nothing."""
    return tuple(key for key in RIVALS if labels.get(key, OFF) != OFF)


def at_work(labels: Mapping[str, str]) -> bool:
    """The operator has paused one of these parts, and puts its label back."""
    return any(PAUSED in labels.get(key, "") for key in RIVALS)


def driver_unloads(labels: Mapping[str, str]) -> str:
    """The label by which the driver is about to be unloaded, or not loaded again yet; empty where there is none.

    Without the operator's upgrades, as where a person deletes the driver's pod, only the paused parts show it.
    """
    if labels.get(UPGRADE_STATE) == UNLOADING:
        return f"{UPGRADE_STATE}={UNLOADING}"
    paused = (key for key in labels if key.startswith(PREFIX) and labels[key].endswith(f"{PAUSED}driver-upgrade"))
    return next((f"{key}={labels[key]}" for key in sorted(paused)), "")


def switch_off(node: str, keys: tuple[str, ...]) -> str:
    """The command for people."""
    return f"kubectl label node {node} {' '.join(f'{key}={OFF}' for key in keys)} --overwrite"
