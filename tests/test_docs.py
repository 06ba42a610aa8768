"""The documentation names files that exist.

Reads every Markdown file of the repository and compares its relative links, and the index of decisions, with the files.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page.relative_to(ROOT)
    for folder in (ROOT, *(one for one in ROOT.iterdir() if one.is_dir() and not one.name.startswith(".")))
    for page in (folder.glob("*.md") if folder == ROOT else folder.rglob("*.md"))
)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")


def test_pages_are_found() -> None:
    assert {Path("README.md"), Path("docs/architecture.md"), Path("docs/decisions/README.md")} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_relative_links_lead_to_files(page: Path) -> None:
    links = LINK.findall((ROOT / page).read_text())
    assert [link for link in links if not (ROOT / page.parent / link).exists()] == []


def test_every_decision_is_in_the_index_once() -> None:
    folder = ROOT / "docs/decisions"
    indexed = LINK.findall("\n".join(line for line in (folder / "README.md").read_text().split("\n") if "| [" in line))
    assert indexed == sorted(page.name for page in folder.glob("[0-9]*.md"))
