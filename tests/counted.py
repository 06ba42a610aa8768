"""Counts what a piece of work does: unlike the time that it takes, the same on every machine."""

import sys
from collections.abc import Callable


def calls(ask: Callable[[], object]) -> int:
    """Of Python functions."""
    found = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal found
        found += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        ask()
    finally:
        sys.setprofile(before)
    return found
