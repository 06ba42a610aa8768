"""What `make test` leaves out, CI runs: tests marked `thorough`, and all points of a sweep."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.drawn import FULL, cells, points

ROOT = Path(__file__).parents[1]


def printed(*arguments: str) -> str:
    """What make would run."""
    # A make around this one passes on what it was given.
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PROFILE"))}
    command = ["make", "--dry-run", "--old-file", ".venv/.ready", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize(
    ("arguments", "spared"), [([], True), (["PROFILE=quick"], True), (["PROFILE=thorough"], False)]
)
def test_the_quick_profile_alone_spares_thorough_tests(arguments: list[str], spared: bool) -> None:
    (line,) = [line for line in printed("test", *arguments).splitlines() if "-m pytest" in line]
    assert ('-m "not thorough"' in line) is spared


def test_ci_spares_none() -> None:
    (line,) = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line.startswith("make test")]
    assert "PROFILE=thorough" in line.split()


@pytest.fixture
def profile(request: pytest.FixtureRequest) -> Iterator[None]:
    chosen = settings.get_current_profile_name()
    settings.load_profile(request.param)
    yield
    settings.load_profile(chosen)


@pytest.mark.parametrize(
    ("profile", "taken"),
    [("quick", [1, 7, 8]), ("thorough", [*range(1, 9)]), ("explore", [*range(1, 9)])],
    indirect=["profile"],
)
@pytest.mark.usefixtures("profile")
def test_a_sweep_begins_with_its_first_point_and_ends_with_its_last(taken: list[int]) -> None:
    assert list(points(range(1, 9))) == taken
    assert list(points(range(0))) == []


@pytest.mark.parametrize("profile", ["quick", "thorough"], indirect=True)
@pytest.mark.usefixtures("profile")
def test_of_a_table_ci_takes_every_cell_and_others_each_value() -> None:
    drawn = cells("abc", [1, 2])
    quick = settings.get_current_profile_name() == "quick"
    assert len(drawn) == len(set(drawn)) == (3 if quick else 6)
    assert [set(column) for column in zip(*drawn, strict=True)] == [set("abc"), {1, 2}]


def test_ci_takes_every_point_of_a_sweep() -> None:
    assert settings.get_profile("thorough").max_examples >= FULL
