"""What one pass knows of a node that NVIDIA's device plugin serves. Values only."""

from dataclasses import dataclass

from nodeagent.nvidia.advertised_by_nvidia import Registered
from nodeagent.observed.node import ObservedNode
from nodeagent.observed.pods import ObservedPods


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    node: ObservedNode
    pods: ObservedPods
    held: str
    """What is, or may be, in use; empty: nothing."""
    held_before: str
    """Which container holds a device that the config of the plan does not have."""
    registered: Registered
    """Of the config that the plan has."""
    answered: bool
    """The kubelet did, in this pass; else `registered` is what it showed last."""
