"""`python -m deploy.release.changelog VERSION`: the fragments in changes/ become a part of CHANGELOG.md, and go.

Each change brings a file of its own, so that two branches never edit one place. A fragment is a heading of the
changelog and its bullets. They join the part "Unreleased", where it is there, under the heading that they name, and
that part gets the version and the date of today. A fragment that is not well formed ends it with a sentence, and
nothing is written.
"""

import re
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).parents[2]
FRAGMENTS = ROOT / "changes"
CHANGELOG = ROOT / "CHANGELOG.md"
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
"""Of Keep a Changelog, in its order; what follows a colon is a subject of the reader's: "Added: MPS"."""
FRAGMENT = re.compile(rf"### ((?:{'|'.join(KINDS)})(?:: \S[^\n]*)?)\n\n((?:- \S[^\n]*\n(?:  \S[^\n]*\n)*)+)")
UNRELEASED = re.compile(r"^## Unreleased\n+(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def fragments(folder: Path) -> list[tuple[str, str]]:
    """Heading and bullets of each file, by name; its README says what a fragment is."""
    found = []
    for path in sorted(folder.glob("*.md")):
        if path.name != "README.md":
            match = FRAGMENT.fullmatch(path.read_text())
            if match is None:
                raise ValueError(f"{path}: a fragment is a line `### Added: subject`, an empty line, and bullets")
            found.append((match[1], match[2]))
    return found


def assembled(text: str, heading: str, added: list[tuple[str, str]]) -> str:
    """The changelog with what is unreleased under this heading; unchanged, where there is nothing."""
    there = UNRELEASED.search(text)
    intro, *parts = re.split(r"^### ", there[1] if there else "", flags=re.MULTILINE)
    sections = dict(part.strip().split("\n\n", 1) for part in parts)
    for title, bullets in added:
        sections[title] = "\n".join(filter(None, [sections.get(title, "").rstrip(), bullets.rstrip()]))
    if not sections and not intro.strip():
        return text
    # The sort is stable: subjects of one kind stay in their order.
    titles = sorted(sections, key=lambda title: KINDS.index(title.partition(":")[0]))
    blocks = [f"## {heading}", intro.strip(), *(f"### {title}\n\n{sections[title].rstrip()}" for title in titles)]
    part = "\n\n".join(filter(None, blocks)) + "\n\n"
    before, after = (text[: there.start()], text[there.end() :]) if there else _around_the_newest(text)
    return f"{before}{part}{after}".rstrip() + "\n"


def _around_the_newest(text: str) -> tuple[str, str]:
    newest = re.search(r"^## ", text, re.MULTILINE)
    return (text[: newest.start()], text[newest.start() :]) if newest else (text.rstrip() + "\n\n", "")


def main(version: str) -> int:
    try:
        added = fragments(FRAGMENTS)
    except ValueError as error:
        print(f"changelog: {error}", file=sys.stderr)
        return 1
    CHANGELOG.write_text(assembled(CHANGELOG.read_text(), f"{version} - {datetime.now(UTC):%Y-%m-%d}", added))
    for path in FRAGMENTS.glob("*.md"):
        if path.name != "README.md":
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
