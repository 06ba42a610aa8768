"""The documentation names files, modules and functions that exist.

Reads every Markdown file of the repository and compares its links, the paths and functions that it names, the tables of
the map and the index of decisions with the tree.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page.relative_to(ROOT)
    for folder in (
        ROOT,
        *(one for one in ROOT.iterdir() if one.is_dir() and not one.name.startswith((".", "build", "dist"))),
    )
    for page in (folder.glob("*.md") if folder == ROOT else folder.rglob("*.md"))
)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\(([^)#\s:]*)#([^)\s]+)\)")


def test_pages_are_found() -> None:
    assert {Path("README.md"), Path("docs/architecture.md"), Path("docs/decisions/README.md")} <= set(PAGES)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_relative_links_lead_to_files(page: Path) -> None:
    links = LINK.findall((ROOT / page).read_text())
    assert [link for link in links if not (ROOT / page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_anchors_are_headings(page: Path) -> None:
    for target, anchor in ANCHOR.findall((ROOT / page).read_text()):
        linked = (ROOT / page.parent / target) if target else ROOT / page
        titles = re.findall(r"^#+ (.+)$", linked.read_text(), flags=re.MULTILINE)
        assert anchor in [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles]


def test_every_decision_is_in_the_index_once() -> None:
    folder = ROOT / "docs/decisions"
    indexed = LINK.findall("\n".join(line for line in (folder / "README.md").read_text().split("\n") if "| [" in line))
    assert indexed == sorted(page.name for page in folder.glob("[0-9]*.md"))


each_page_of_today = pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=str)
TOKEN = re.compile(r"`([^`\n]+)`")
TOPS = "benchmarks|cli|controller|crds|deploy|docs|examples|kube|nodeagent|partitioning|requirements|sandbox|tests"
PATH = re.compile(rf"(?:{TOPS})/[\w./*-]*")
FUNCTION = re.compile(r"([\w/]+\.py):([\w.]+)")
BASE = re.compile(r"The (?:rooms|stages) of `([\w/]+)/`")


def tokens(text: str) -> list[str]:
    return TOKEN.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def defined(file: Path) -> set[str]:
    """Names of functions and classes, and `Class.method`."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    found = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, kinds):
            found.add(node.name)
            found |= {f"{node.name}.{inner.name}" for inner in ast.walk(node) if isinstance(inner, kinds)}
    return found


@each_page_of_today
def test_paths_of_the_repository_exist(page: Path) -> None:
    named = [token for token in tokens((ROOT / page).read_text()) if PATH.fullmatch(token)]
    assert [path for path in named if not any(ROOT.glob(path.rstrip("/")))] == []


@each_page_of_today
def test_functions_exist(page: Path) -> None:
    named = [match for token in tokens((ROOT / page).read_text()) if (match := FUNCTION.fullmatch(token))]
    missing = [m[0] for m in named if not (ROOT / m[1]).is_file() or m[2] not in defined(ROOT / m[1])]
    assert missing == []


@each_page_of_today
def test_commands_exist(page: Path) -> None:
    text = (ROOT / page).read_text()
    code = [
        *re.findall(r"```.*?```", text, flags=re.DOTALL),
        *re.findall(r"^    .*$", text, flags=re.MULTILINE),
        *tokens(text),
    ]
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    made = {target for line in code for target in re.findall(r"(?:^|\n|&& )make ([a-z0-9-]+)", line)}
    run = {module for line in code for module in re.findall(r"python -m ([\w.]+)", line)} - {"pytest"}
    run |= {module for line in code for module in re.findall(r"from ([\w.]+) import", line)}
    modules = [(ROOT / name.replace(".", "/")) for name in run]
    files = {path for line in code for path in re.findall(r"(?<=[ \n=])tests/[\w/.]+", line)}
    assert made - targets == set()
    assert [path for path in files if not (ROOT / path).exists()] == []
    assert [
        path for path in modules if not path.with_suffix(".py").is_file() and not (path / "__main__.py").is_file()
    ] == []


def rooms() -> Iterator[tuple[str, str, str]]:
    """The rows of the map's tables: folder, its rooms, its modules."""
    base = ""
    for line in (ROOT / "docs/architecture.md").read_text().split("\n"):
        if found := BASE.match(line):
            base = found[1]
        elif line.startswith("## "):
            base = ""
        cells = line.strip("|").split("|")
        if base and line.startswith("| `") and len(cells) == 3:
            yield base, cells[0], cells[2]


def test_the_map_names_every_module_of_a_room_and_no_other() -> None:
    assert list(rooms())
    for base, first, last in rooms():
        places = [ROOT / base / room for room in TOKEN.findall(first)]
        there = {file.stem for place in places if place.is_dir() for file in place.glob("*.py")}
        assert all(place.exists() for place in places), first
        assert (first, set(re.findall(r"`(\w+)`", last))) == (first, there - {"__init__", "__main__"})


def test_the_map_begins_with_files_that_exist() -> None:
    packages = (ROOT / "docs/architecture.md").read_text().split("## Packages", 1)[1].split("\n\n", 2)[1]
    begun = [TOKEN.findall(row) for row in packages.split("\n")[2:]]
    assert begun
    assert [(folder, file) for folder, *rest in begun for file in rest if not _begins(ROOT / folder, file)] == []


def _begins(folder: Path, file: str) -> bool:
    return not file.endswith(".py") or any(folder.rglob(file))
