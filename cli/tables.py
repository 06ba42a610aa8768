"""Formats plain tables for people: pure text, columns two blanks apart."""

import textwrap
from collections.abc import Iterable, Sequence

WRAP_WIDTH = 120
LEAST_ROOM = 30


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows under a header; each column as wide as its widest cell, the last one as it is."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(line, widths, strict=False)), line[-1]]).rstrip()
        for line in lines
    )


def wrapped_table(header: Sequence[str], rows: Iterable[Sequence[str]], width: int) -> str:
    """The same, its last column broken into lines so that rows fit this width as long as that leaves it some room."""
    rows = list(rows)
    lines = [header, *rows]
    before = sum(max(len(line[column]) for line in lines) + 2 for column in range(len(header) - 1))
    room = max(width - before, LEAST_ROOM)
    broken: list[Sequence[str]] = []
    for row in rows:
        first, *others = textwrap.wrap(row[-1], room, break_long_words=False, break_on_hyphens=False) or [""]
        broken += [(*row[:-1], first), *((*("" for _ in row[:-1]), other) for other in others)]
    return table(header, broken)
