"""Numbers and names as messages say them.

In go counts, nouns and names, out come pieces of a sentence. Nothing here decides anything, or knows why a pod waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_GIB = 2**30
_NAMED = 3
"""How many things of one sort a sentence names."""


def counted(number: float, noun: str) -> str:
    """`1 node`, `2 nodes`, `0.5 cores`."""
    return f"{number:.12g} {noun}" + ("" if number == 1 else "s")


def spelled(wants: Iterable[tuple[str, int]]) -> str:
    """`2 x nvidia.com/mig-1g.5gb and 1 x nvidia.com/mig-3g.20gb`."""
    return " and ".join(f"{count} x {resource}" for resource, count in wants)


def listed(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def cores(milli: int) -> str:
    return counted(milli / 1000, "core")


def gib(amount_bytes: int) -> str:
    return f"{amount_bytes / _GIB:.1f} GiB"
