"""Which processes have the driver of a simulated machine open.

A process holds a lock on a file next to the machine's state for as long as its library is started; the kernel gives it
back when the process ends, however it ends. Never waits.
"""

import fcntl
import os
from pathlib import Path


def _file(machine: Path) -> Path:
    return machine.with_name(f"{machine.name}.open")


def enter(machine: Path) -> int:
    """A descriptor that keeps the driver open until it is closed."""
    descriptor = os.open(_file(machine), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def any_open(machine: Path) -> bool:
    """Some process has it open at this moment."""
    with _file(machine).open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
