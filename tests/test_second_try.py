"""A second run of failed tests is allowed for two tests of a run, not for three, and `make unit` acts on it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.second_try import verdict

ROOT = Path(__file__).parents[1]
FLAKY = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("name", {names})
def test_passes_the_second_time(name):
    seen = Path(__file__).with_name(name)
    there = seen.exists()
    seen.touch()
    assert there
"""


@pytest.mark.parametrize(
    ("failed", "earlier", "code", "first_line"),
    [
        (["a::one"], [], 0, "SECOND TRY of 1 failed tests (1 in this run), see above why:"),
        (["b::two", "a::one"], [], 0, "SECOND TRY of 2 failed tests (2 in this run), see above why:"),
        (["b::two"], ["a::one"], 0, "SECOND TRY of 1 failed tests (2 in this run), see above why:"),
        (["a::one", "a::two", "a::three"], [], 1, "NO SECOND TRY: 3 tests failed in this run, more than 2:"),
        (["a::one"], ["a::two", "a::three"], 1, "NO SECOND TRY: 3 tests failed in this run, more than 2:"),
    ],
)
def test_a_second_run_is_for_two_tests_at_most(
    failed: list[str], earlier: list[str], code: int, first_line: str
) -> None:
    found, text = verdict(failed, earlier)
    assert found == code
    assert text.splitlines() == [first_line, *(f"  {test}" for test in sorted([*earlier, *failed]))]


def make_unit(folder: Path, earlier: int = 0) -> tuple[int, str, int]:
    """`make unit AGAIN=1` over the tests of one folder: exit code, output, and second tries counted in this run."""
    counted = folder / "counted"
    counted.write_text("earlier::test\n" * earlier)
    pytest_command = f"{sys.executable} -m pytest -q -c {os.devnull} --rootdir {folder} -o cache_dir={folder}/cache"
    arguments = (f"UNIT={pytest_command}", f"ONLY={folder}/test_it.py", f"CACHE={folder}/cache", "AGAIN=1", "COVERAGE=")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make", "--old-file", ".venv/.ready", "unit", *arguments],
        cwd=ROOT,
        env={**environment, "SECOND_TRIES": str(counted), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, len(counted.read_text().splitlines())


@pytest.mark.slow
def test_make_runs_failed_tests_a_second_time_and_counts_them(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FLAKY.format(names=["a", "b"]))
    code, printed, counted = make_unit(tmp_path)
    assert (code, counted) == (0, 2), printed
    assert "SECOND TRY of 2 failed tests" in printed


@pytest.mark.slow
def test_make_counts_the_second_tries_of_earlier_suites(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(FLAKY.format(names=["a"]))
    code, printed, counted = make_unit(tmp_path, earlier=2)
    assert code != 0
    assert counted == 3
    assert "NO SECOND TRY: 3 tests failed in this run" in printed


@pytest.mark.slow
def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_fails():\n    assert False\n")
    code, printed, _ = make_unit(tmp_path)
    assert code != 0
    assert printed.count("1 failed in") == 2
