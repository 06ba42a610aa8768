"""A node of NVIDIA's programs that remembers what they did, and can lose signals.

Changes nothing else of it.
"""

from typing import Any

from sandbox.nvidia_plugin.node import NvidiaNode
from sandbox.nvidia_plugin.plugin import NvidiaDevicePlugin
from sandbox.nvidia_plugin.pods import DAEMON_SETS, PLUGIN, DaemonSet


class WatchedNode(NvidiaNode):
    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.deaf = False
        """Signals are sent to the device plugin and do not arrive."""
        self.history: list[dict[str, tuple[str, ...]]] = []
        """What the plugin served, each time that it changed."""
        self.signalled: list[str] = []
        """Programs that got a signal by another program than their sidecar."""
        self.exits: list[str] = []
        """Errors that ended one of the three programs."""

    def step(self) -> None:
        super().step()
        for pod in filter(None, map(self.pod, DAEMON_SETS)):
            if pod.program.ended and pod.program.ended not in self.exits:
                self.exits.append(pod.program.ended)
        plugin = self.pod(PLUGIN)
        serves = plugin.program.resources if plugin and isinstance(plugin.program, NvidiaDevicePlugin) else {}
        if not self.history or self.history[-1] != serves:
            self.history.append(serves)

    def heard(self, daemon_set: DaemonSet) -> None:
        self.signalled.append(daemon_set.program)
        super().heard(daemon_set)

    def signal(self, daemon_set: DaemonSet) -> str | None:
        return None if self.deaf and daemon_set is PLUGIN else super().signal(daemon_set)
