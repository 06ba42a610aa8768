"""Pauses the garbage collector during a planning pass.

A pass makes hundreds of thousands of objects, nearly all of which reference counts free by themselves; the collector
would walk a snapshot of 50,000 pods again and again meanwhile, for up to half of the pass's time, and find nothing.
The pure planner never touches it; its caller does, through this module.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Leaves the collector as it was, also where the pass breaks."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
