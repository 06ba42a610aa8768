"""The log format of every gpuplan process: one line per record on stderr, with the time in UTC.

`2026-01-01T12:00:00Z INFO    controller.loop: …`. Must be called once, by the module that reads the command line.
"""

import logging
import sys
import time


def log_to_stderr(level: str) -> None:
    """From now on everything of this severity or above; `level` in any case, such as `info`."""
    formatter = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s", datefmt="%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
