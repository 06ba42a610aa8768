"""How thoroughly property tests draw: `quick` in the inner loop, `thorough` in CI, `explore` to hunt for new cases.

pytest's option --hypothesis-profile chooses. The first two draw the same examples in each run, so that a failure is
the change's own; `explore` draws others each time. No deadline per example: the machine may be busy. Also a fixture for
tests that call the `main` of a program.
"""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("quick", max_examples=25, deadline=None, derandomize=True)
settings.register_profile("thorough", max_examples=100, deadline=None, derandomize=True)
settings.register_profile("explore", max_examples=400, deadline=None)
settings.load_profile("quick")


@pytest.fixture
def own_logging() -> Iterator[None]:
    """What `main` sets up is for a process of its own."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
