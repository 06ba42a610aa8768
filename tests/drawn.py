"""How many examples of a property, and which points of a sweep, a test takes, by the chosen hypothesis profile."""

import random
from collections.abc import Sequence
from itertools import product
from typing import Any, TypeVar

from hypothesis import settings

FULL = 100
LEAST = 5
T = TypeVar("T")


def examples(thorough: int) -> int:
    """So many where 100 are drawn by default, else as much fewer as the profile draws."""
    return max(LEAST, thorough * _by_default() // FULL)


def points(sweep: Sequence[T]) -> Sequence[T]:
    """All where 100 examples are drawn by default, else every sixth, and the last."""
    return sweep if _by_default() >= FULL else [*sweep[:-1:6], *sweep[-1:]]


def cells(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Of a table all cells where 100 examples are drawn by default, else as few as show each value of each axis."""
    if _by_default() >= FULL:
        return list(product(*axes))
    columns = [[axis[number % len(axis)] for number in range(max(map(len, axes)))] for axis in axes]
    dice = random.Random(0)
    for column in columns[1:]:
        dice.shuffle(column)
    return list(zip(*columns, strict=True))


def _by_default() -> int:
    profile = settings.default
    assert profile is not None, "tests/conftest.py loads a profile"
    return profile.max_examples
