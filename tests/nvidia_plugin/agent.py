"""Runs the node agent, which finds NVIDIA's programs in a folder that looks like /proc.

Takes the agent's own arguments; the folder lies next to its config file. Changes nothing else of it.
"""

import runpy
import sys
from functools import partial
from pathlib import Path
from unittest.mock import patch

from nodeagent.nvidia.hang_up import HangUp
from tests.nvidia_plugin.processes import send

if __name__ == "__main__":
    folder = Path(sys.argv[sys.argv.index("--config") + 1]).parent / "processes"
    with patch("nodeagent.process.HangUp", partial(HangUp, folder, partial(send, folder))):
        runpy.run_module("nodeagent", run_name="__main__", alter_sys=True)
