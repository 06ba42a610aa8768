"""What the pages show as code: manifests, and commands as a shell would read them."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import dropwhile, islice, takewhile
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
SHELL = ("sh", "console")
SKIPPED = ("CHANGELOG.md",)  # tells of what was
ASSIGNMENT = re.compile(r"^[A-Z_0-9]+=\S*$")


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a page; `whole` where it stands on a line of its own, with everything that it needs."""

    page: str
    words: tuple[str, ...]
    whole: bool

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


def pages() -> Iterator[tuple[str, str]]:
    """Every page of the repository with its text."""
    folders = [one for one in ROOT.iterdir() if one.is_dir() and not one.name.startswith(".") and one.name != "build"]
    for path in sorted([*ROOT.glob("*.md"), *(page for folder in folders for page in folder.rglob("*.md"))]):
        name = path.relative_to(ROOT).as_posix()
        if name not in SKIPPED:
            yield name, path.read_text()


def manifests() -> Iterator[tuple[str, str]]:
    """Every block of YAML with its page."""
    for page, text in pages():
        for indent, language, body in FENCE.findall(text):
            if language == "yaml":
                yield page, re.sub(rf"^{indent}", "", body, flags=re.MULTILINE)


def table(page: str, heading: str) -> dict[str, list[str]]:
    """The rows of the first table below a heading, by their first cell."""
    lines = page.split(f"\n## {heading}\n", 1)[1].split("\n")
    rows = takewhile(lambda line: line.startswith("|"), dropwhile(lambda line: not line.startswith("|"), lines))
    cells = [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in islice(rows, 2, None)]
    return {first: rest for first, *rest in cells}


def commands() -> Iterator[Command]:
    """Every command of the pages, those between words included."""
    for page, text in pages():
        for line in _lines(text):
            yield from (Command(page, words, whole=True) for words in _split(line))
        prose = re.sub(r"^ {4}.*$", "", FENCE.sub("", text), flags=re.MULTILINE)
        for token in INLINE.findall(prose):
            if "…" not in token and re.match(r"(kubectl|helm|gpuplan) ", token):
                yield from (Command(page, words, whole=False) for words in _split(token))


def _lines(text: str) -> Iterator[str]:
    """Lines of shell: fenced, or indented after an empty line. A line that ends with a backslash goes on."""
    fenced = [body for _, language, body in FENCE.findall(text) if language in SHELL]
    indented = re.findall(r"\n\n((?: {4}.*\n)+)", FENCE.sub("", text) + "\n")
    for block in (*fenced, *indented):
        yield from re.sub(r"\\\n\s*", "", block).splitlines()


def _split(line: str) -> Iterator[tuple[str, ...]]:
    """The commands of one line, without comment, assignments and the folder of the virtual environment."""
    lexer = shlex.shlex(line.strip().removeprefix("$ "), posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words: list[str] = []
    to_file = False
    for word in (*lexer, "|"):
        if set(word) <= set("|&;<>"):
            given = list(dropwhile(ASSIGNMENT.match, words))
            if given and not to_file:
                yield (given[0].removeprefix(".venv/bin/"), *given[1:])
            words, to_file = [], set(word) <= set("<>")
        else:
            words.append(word)
