"""A node's directories and a running supervisor, as the device plugin's tests have them."""

from tests.nodeagent.device_plugin.conftest import node, start_mps

__all__ = ["node", "start_mps"]
