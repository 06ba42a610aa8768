"""A stand-in for `nvidia-cuda-mps-control` (protocol 2), for machines without a GPU.

Put `search_path()` on PATH. A control daemon is a state file in its pipe directory, there is no process; clients
are put in by `clients`. What it answers is measured on the real command of driver 535.261.03; it limits nothing.
"""

import os
import sys


def search_path(others: str) -> str:
    """PATH on which the stand-in is found, and this Python before any other: it starts for every command, and a
    version manager's `python3` would take five times as long."""
    return f"{os.path.dirname(__file__)}:{os.path.dirname(sys.executable)}:{others}"
