"""Reads the end of a log file."""

from pathlib import Path


def tail(log: Path, lines: int = 8) -> str:
    """'' where there is no log yet."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""
