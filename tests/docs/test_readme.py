"""What the first pages promise a newcomer: evidence for each comparison, and a row for each example."""

import re

from tests.docs.pages import ROOT, table

README = (ROOT / "README.md").read_text()
COMPARISON = README.split("\n## Compared with others\n", 1)[1].split("\n## ", 1)[0]


def test_every_row_of_the_comparison_has_evidence_for_gpuplan() -> None:
    rows = table(README, "Compared with others")
    assert len(rows) >= 8
    assert [name for name, (ours, *_) in rows.items() if not re.search(r"\]\((docs|tests)/", ours)] == []


def test_every_source_of_the_comparison_is_named_and_used() -> None:
    rows, sources = COMPARISON.split("\nRead in ", 1)
    used, named = set(re.findall(r"\[([a-z])\]", rows)), re.findall(r"\[([a-z])\] ", sources)
    assert sorted(used) == named == sorted(named)


def test_every_page_is_linked() -> None:
    assert [path.name for path in (ROOT / "docs").glob("*.md") if f"(docs/{path.name})" not in README] == []


def test_every_example_has_a_row() -> None:
    rows = table((ROOT / "docs/sandbox.md").read_text(), "Examples")
    assert sorted(rows) == sorted(f"examples/{path.name}" for path in (ROOT / "examples").iterdir() if path.is_dir())
