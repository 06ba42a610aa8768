"""Each decision says what it costs to keep: code lines, counted again here, and CPU seconds, measured or not."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.test_budget import code_lines

DECISIONS = sorted((ROOT / "docs/decisions").glob("[0-9]*.md"))
TOLERATED = 0.25
"""The number is written once and then drifts: beyond a quarter it misleads."""
SIZE = re.compile(r"^\*\*Size\.\*\* ([\d,]+) code lines in ((?:`[^`]+`(?:, )?)+)\. CPU: \S", re.MULTILINE)

each_decision = pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)


@cache
def lines_of(file: Path) -> int:
    """Several decisions name the same folders."""
    return code_lines(file.read_text())


def counted(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*.py") if "_pb2" not in file.name]
    assert files, path
    return sum(map(lines_of, files))


@each_decision
def test_a_decision_states_its_lines_and_cpu_seconds(page: Path) -> None:
    (size,) = SIZE.finditer(page.read_text())
    lines = sum(counted(ROOT / path) for path in re.findall(r"`([^`]+)`", size[2]))
    assert int(size[1].replace(",", "")) == pytest.approx(lines, rel=TOLERATED)


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs/decisions/README.md").read_text()
    assert re.findall(r"^\| \[(\d+)\]\(([^)]+)\) ", index, re.MULTILINE) == [
        (page.name[:4], page.name) for page in DECISIONS
    ]
