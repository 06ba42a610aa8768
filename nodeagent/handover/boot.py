"""Reads which boot of the node this is: another id means that the machine was restarted in between."""

from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id(path: Path = BOOT_ID) -> str:
    """Empty where the kernel does not provide it."""
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return ""
