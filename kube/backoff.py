"""Computes growing pauses with jitter, so that many clients do not retry in step.

Takes a source of random numbers, returns seconds to wait. Never sleeps.
"""

import random
from collections.abc import Callable


class Backoff:
    """Doubles from `first_seconds` to `cap_seconds`; each pause is half to all of that."""

    def __init__(
        self, *, first_seconds: float, cap_seconds: float, jitter: Callable[[], float] = random.random
    ) -> None:
        self._first_seconds = first_seconds
        self._cap_seconds = cap_seconds
        self._jitter = jitter
        self._step_seconds = first_seconds

    def next_seconds(self) -> float:
        step_seconds = self._step_seconds
        self._step_seconds = min(step_seconds * 2, self._cap_seconds)
        return step_seconds * (0.5 + self._jitter() / 2)

    def reset(self) -> None:
        self._step_seconds = self._first_seconds
