"""Programs that are run to their end, and that end with us however we die.

Takes a command and how long it may take; returns its exit code and output. `part.Part` is for servers that go on
running; this is for a compiler, or for a command that starts a whole cluster of its own.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LEASH = Path(__file__).with_name("leash.py")


def run(command: Sequence[str], *, seconds: float, **options: Any) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run` without standard input; raises TimeoutExpired. The program is given by its full path."""
    # Only this process holds the pipe's other end, so it is closed when this process is gone.
    read_end, write_end = os.pipe()
    try:
        return subprocess.run(
            [sys.executable, str(LEASH), *command], stdin=read_end, timeout=seconds, check=False, **options
        )
    finally:
        os.close(read_end)
        os.close(write_end)
