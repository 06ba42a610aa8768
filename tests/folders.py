"""Where tests keep their folders: in memory, on a machine with a large enough /dev/shm.

The product and its stand-ins replace small files all the time, which on a disk takes ten times as long. `TMPDIR`, where
it is set, has the last word. Never used by the suites that run real servers and containers: those need more room.
"""

import os
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
ROOM_BYTES = 2 * 2**30
"""Ten times what one run leaves there; a container's own /dev/shm has 64 MiB by default."""


def use_memory() -> None:
    """For this process and all that it starts."""
    if "TMPDIR" not in os.environ and _has_room(MEMORY):
        os.environ["TMPDIR"] = str(MEMORY)
        tempfile.tempdir = None  # pytest may have looked it up already


def short() -> Path:
    """Where the path of a unix socket, 107 bytes at most, has room for the rest: TMPDIR may be long."""
    found = Path(tempfile.gettempdir())
    return found if found == MEMORY else Path("/tmp")


def _has_room(folder: Path) -> bool:
    """Programs of tests lie there, too."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    enough = found.f_bavail * found.f_frsize >= ROOM_BYTES
    return enough and not found.f_flag & (os.ST_NOEXEC | os.ST_RDONLY) and os.access(folder, os.W_OK | os.X_OK)
