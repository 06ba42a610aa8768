"""What `make test` leaves out, CI runs: tests marked `thorough`."""

import os
import subprocess
from pathlib import Path

import pytest

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
