"""A stand-in for `nvidia-cuda-mps-control` (protocol 2), for machines without a GPU.

Put `search_path()` on PATH. A control daemon is a state file in its pipe directory, there is no process; clients
are put in by `clients`. What it answers is measured on the real command of driver 535.261.03; it limits nothing.
"""

from __future__ import annotations

TYPE_CHECKING = False  # the command itself imports this package, and should start fast
if TYPE_CHECKING:
    from pathlib import Path


def directory() -> Path:
    """The folder that holds the executable."""
    from pathlib import Path  # noqa: PLC0415 - see above

    return Path(__file__).parent


def search_path(others: str) -> str:
    """PATH on which the stand-in is found, and this Python before any other: it starts for every command, and a
    version manager's `python3` would take five times as long."""
    import sys  # noqa: PLC0415 - see above
    from pathlib import Path  # noqa: PLC0415

    return f"{directory()}:{Path(sys.executable).parent}:{others}"
