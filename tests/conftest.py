"""How thoroughly property tests draw: `quick` in the inner loop, `thorough` in CI, `explore` to hunt for new cases.

pytest's option --hypothesis-profile chooses. The first two draw the same examples in each run, so that a failure is the
change's own; `explore` draws others each time. No deadline per example: the machine may be busy. Also what all tests
share: a collection of tests that the garbage collector does not slow down, and that one process compiles; folders in
memory, no fsync, and logging as it was before.
"""

import gc
import logging
import os
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from hypothesis import settings

from tests import compiled, folders

if not {"GPUPLAN_E2E", "GPUPLAN_HARDWARE"} & os.environ.keys():
    folders.use_memory()

settings.register_profile("quick", max_examples=15, deadline=None, derandomize=True)
settings.register_profile("thorough", max_examples=100, deadline=None, derandomize=True)
settings.register_profile("explore", max_examples=400, deadline=None)
settings.load_profile("quick")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Modules and tests stay to the end: the collector would walk these millions of objects again and again."""
    gc.disable()
    with compiled.first_alone(compiled.TESTS / "__pycache__") if compiled.needed() else nullcontext():
        yield
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True)
def own_logging() -> Iterator[None]:
    """What `main` sets up is for a process of its own: its handler writes to the stderr of one test, later closed."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True, scope="session")
def no_power_cuts() -> Iterator[None]:
    """Tests kill processes, never the machine: fsync would only wait for a disk that other processes use."""
    patch = pytest.MonkeyPatch()
    patch.setattr(os, "fsync", lambda _descriptor: None)
    yield
    patch.undo()
