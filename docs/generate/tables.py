"""Tables of a Markdown page."""

from collections.abc import Iterable, Sequence

MADE = "Made by `python -m docs.generate --write`. Do not edit."
"""The last line of a page: the first is a reader's."""


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; what Markdown would take for a column or for HTML inside a cell is escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(text) for text in line) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    between_code = text.replace("|", "\\|").split("`")
    between_code[::2] = [part.replace("<", "&lt;") for part in between_code[::2]]
    return "`".join(between_code)
