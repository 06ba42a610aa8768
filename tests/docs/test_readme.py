"""What the first pages promise a newcomer: evidence for each comparison and for safety, and a row for each example."""

import re

import pytest

from tests.docs.pages import ROOT, table

README = (ROOT / "README.md").read_text()
COMPARED = (ROOT / "docs/compared.md").read_text().replace("# Compared", "\n## Compared", 1)
COMPARISON = COMPARED.split("\n## ", 2)[1]


def test_every_row_of_the_comparison_has_evidence_for_gpuplan() -> None:
    rows = table(COMPARED, "Compared with others")
    assert len(rows) >= 8
    assert [name for name, (ours, *_) in rows.items() if "](" not in ours and "`" not in ours] == []


def test_what_is_said_of_safety_names_its_test() -> None:
    bullets = README.split("\n## Is it safe?\n", 1)[1].split("\n## ", 1)[0].split("\n- ")[1:]
    assert len(bullets) == 4
    assert [bullet for bullet in bullets if "](tests/" not in bullet] == []


def test_every_source_of_the_comparison_is_named_and_used() -> None:
    rows, sources = COMPARISON.split("\n[a] ", 1)
    sources = "[a] " + sources
    used, named = set(re.findall(r"\[([a-z])\]", rows)), re.findall(r"\[([a-z])\] ", sources)
    assert sorted(used) == named == sorted(named)


@pytest.mark.parametrize(
    ("section", "answer"),
    [
        ("gpuplan", "It is for administrators"),
        ("What you see", "docs/demo.svg"),
        ("Try it in a minute", "git clone"),
        ("Is it safe?", "docs/security.md"),
        ("Install", "helm install gpuplan"),
        ("Install", "deploy/README.md#upgrading"),
        ("Install", "helm uninstall gpuplan"),
        ("Compared with others", "docs/compared.md"),
        ("Documentation", "CONTRIBUTING.md"),
        ("Documentation", "SECURITY.md"),
        ("Documentation", "docs/architecture.md"),
    ],
)
def test_what_a_newcomer_asks_is_answered_where_it_is_looked_for(section: str, answer: str) -> None:
    assert answer in README.replace("# gpuplan", "## gpuplan", 1).split(f"## {section}\n", 1)[1].split("\n## ", 1)[0]


def test_every_page_is_linked() -> None:
    assert [path.name for path in (ROOT / "docs").glob("*.md") if f"(docs/{path.name})" not in README] == []


def test_every_example_has_a_row() -> None:
    rows = table((ROOT / "docs/sandbox.md").read_text(), "Examples")
    assert sorted(rows) == sorted(f"examples/{path.name}" for path in (ROOT / "examples").iterdir() if path.is_dir())
