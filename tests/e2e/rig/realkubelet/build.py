"""The scripted runtime, built once from `cri/` with Go.

Takes where to cache, and the environment of `go`; returns the program's path, or what is missing. Never runs it.
"""

from pathlib import Path

from tests.e2e.rig.controlplane import Missing, Places
from tests.e2e.rig.controlplane.ownbuild import OwnProgram

PROGRAM = OwnProgram(name="scripted-cri", sources=Path(__file__).parent / "cri")


def scripted_runtime(places: Places) -> Path | Missing:
    """The program; the first call after a change builds it."""
    return PROGRAM.obtain(places)
