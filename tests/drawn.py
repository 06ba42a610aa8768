"""How many examples of a property, and which points of a sweep, a test takes, by the chosen hypothesis profile."""

import random
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, TypeVar

import pytest
from _pytest.mark import ParameterSet
from hypothesis import example, settings

FULL = 100
LEAST = 5
T = TypeVar("T")
Property = TypeVar("Property", bound=Callable[..., None])


def examples(thorough: int) -> int:
    """So many where 100 are drawn by default, else as much fewer as the profile draws."""
    return max(LEAST, thorough * _by_default() // FULL)


def points(sweep: Sequence[T], each: int = 6) -> Sequence[T]:
    """All where 100 examples are drawn by default, else every sixth, or so, and the last."""
    return sweep if _by_default() >= FULL else [*sweep[:-1:each], *sweep[-1:]]


def cells(*axes: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Of a table all cells where 100 examples are drawn by default, else as few as show each value of each axis."""
    if _by_default() >= FULL:
        return list(product(*axes))
    columns = [[axis[number % len(axis)] for number in range(max(map(len, axes)))] for axis in axes]
    dice = random.Random(0)
    for column in columns[1:]:
        dice.shuffle(column)
    return list(zip(*columns, strict=True))


def thorough(*cells: Any) -> list[ParameterSet]:
    """Cells that have their like in what is left, and take more of the CPU: `make test` spares them."""
    return [pytest.param(*(cell if isinstance(cell, tuple) else (cell,)), marks=pytest.mark.thorough) for cell in cells]


def sparing(cells: Sequence[Any], *dear: Any) -> list[Any]:
    """All of these cells, those that are dear as `thorough` ones."""
    return [*(cell for cell in cells if cell not in dear), *thorough(*(cell for cell in cells if cell in dear))]


def with_examples(cases: Sequence[object]) -> Callable[[Property], Property]:
    """A property is tried with these besides what is drawn: with those that `points` takes of them."""

    def decorate(test: Property) -> Property:
        for case in points(cases):
            test = example(case)(test)
        return test

    return decorate


def _by_default() -> int:
    profile = settings.default
    assert profile is not None, "tests/conftest.py loads a profile"
    return profile.max_examples
