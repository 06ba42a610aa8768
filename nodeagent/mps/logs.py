"""Keeps the logs of MPS daemons within a bound: the daemons write on without end, and clients make them write.

Takes the folders of the logs, and empties each file that has grown beyond the bound, in place, since its daemon keeps
it open. What is lost is the past of one daemon; a full disk of the node would be worse.
"""

import logging
import os
from collections.abc import Iterable
from pathlib import Path

log = logging.getLogger(__name__)
MOST_BYTES = 1 << 20
BLOCK_BYTES = 512  # of st_blocks: where a daemon writes on at its old position, the emptied part takes no room


def bound(folders: Iterable[Path]) -> None:
    """A file that cannot be read or emptied is left for the next time."""
    for folder in folders:
        for path in sorted(folder.glob("*.log")):
            try:
                if path.lstat().st_blocks * BLOCK_BYTES > MOST_BYTES:
                    os.truncate(path, 0)
            except OSError as error:
                log.warning("the log %s cannot be bounded: %s", path, error)
