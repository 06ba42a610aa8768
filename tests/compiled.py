"""Lets one of several processes compile the tests where that was never done, and the others take what it wrote.

pytest rewrites each file of tests when it first sees it, which takes ten CPU seconds for all of them, in each process
that begins at the same time.
"""

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TESTS = Path(__file__).parent


def needed() -> bool:
    """Whether this process is one of several that may find tests that no one has compiled."""
    if "PYTEST_XDIST_WORKER" not in os.environ or sys.dont_write_bytecode or sys.pycache_prefix:
        return False
    compiled, tests = (list(TESTS.rglob(name)) for name in ("__pycache__/test_*-pytest-*.pyc", "test_*.py"))
    return len(compiled) < len(tests) / 2  # some are of suites that are run for themselves


@contextmanager
def first_alone(folder: Path) -> Iterator[None]:
    """The first process that comes goes on at once, all others together when it is through."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "compiling.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_SH)
            fcntl.flock(lock, fcntl.LOCK_UN)
        yield
