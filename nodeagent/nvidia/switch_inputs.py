"""What one pass knows of a node that NVIDIA's device plugin serves. Values only."""

from dataclasses import dataclass

from nodeagent.nvidia.advertised_by_nvidia import Registered
from nodeagent.observed.node import ObservedNode
from nodeagent.observed.pods import ObservedPods
from partitioning.resources import SHARED, WHOLE


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
    sound: bool
    """The driver reports every GPU, and nothing wrong with any."""

    @property
    def forgotten(self) -> bool:
        """The kubelet lists nothing of the plugin and nothing is in use, while no GPU is known to be the reason."""
        counted = any(self.node.allocatable.get(resource, 0) for resource in (WHOLE, SHARED))
        return self.answered and self.sound and not self.held and self.registered.none and not counted

    @property
    def dropped(self) -> bool:
        """Nor does it count any device as Unhealthy."""
        return not any(self.node.capacity.get(resource, 0) for resource in (WHOLE, SHARED))
