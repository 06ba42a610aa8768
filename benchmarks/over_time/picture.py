"""Draws how long pods waited, policy by policy, as an SVG picture.

Takes rows of `published`, returns the text of the file. Each workload is a lane, each policy a bar from the least to
the greatest mean wait of its seeds with a dot at the mean, on one axis in powers of ten. The same rows, the same bytes.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

Json = dict[str, Any]
WIDTH, LEFT, RIGHT, TOP, LANE, STEP = 920, 270, 30, 70, 24, 11
FONT = 'font-family="Helvetica, Arial, sans-serif" font-size="12"'
SHORTEST, LONGEST = 0.1, 10_000.0
"""Seconds at the ends of the axis; what is beyond is drawn there."""
COLOURS: Mapping[str, str] = {
    "gpuplan": "#c0392b",
    "no draining": "#e59866",
    "fixed window": "#d4ac0d",
    "counts written": "#f1948a",
    "first-fit": "#2c3e50",
    "best-fit": "#2980b9",
    "best-fit-2": "#16a085",
    "least-spoiled": "#8e44ad",
    "nos": "#b9770e",
}


def svg(rows: Mapping[str, Sequence[Json]]) -> str:
    """`rows` by the title of the workload, in the order of the lanes."""
    heights = [LANE + STEP * len(rows[name]) for name in rows]
    height = TOP + sum(heights) + 20
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" {FONT}>',
        "<title>Mean wait of pods in seconds, from created to bound, with the least and the greatest seed</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        *_legend(list(dict.fromkeys(row["policy"] for each in rows.values() for row in each))),
        *_axis(height - 20),
    ]
    top = TOP
    for (title, policies), tall in zip(rows.items(), heights, strict=True):
        lines.append(f'<text x="10" y="{top + tall / 2:g}">{escape(title)}</text>')
        for number, row in enumerate(policies):
            lines += _bar(row, top + LANE / 2 + STEP * (number + 0.5))
        top += tall
        lines.append(f'<path d="M10 {top}H{WIDTH - RIGHT}" stroke="#ddd"/>')
    return "\n".join([*lines, "</svg>", ""])


def _at(seconds: float) -> float:
    share = math.log(min(max(seconds, SHORTEST), LONGEST) / SHORTEST) / math.log(LONGEST / SHORTEST)
    return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)


def _legend(policies: Sequence[str]) -> Iterator[str]:
    for number, policy in enumerate(policies):
        left = 10 + number * (WIDTH - RIGHT) / len(policies)
        yield f'<circle cx="{left + 5:g}" cy="16" r="4" fill="{COLOURS[policy]}"/>'
        yield f'<text x="{left + 13:g}" y="20">{escape(policy)}</text>'


def _axis(bottom: int) -> Iterator[str]:
    yield f'<text x="{LEFT}" y="42" fill="#555">mean wait in seconds, least and greatest of the seeds</text>'
    for power in range(round(math.log10(SHORTEST)), round(math.log10(LONGEST)) + 1):
        left = _at(10.0**power)
        yield f'<path d="M{left} {TOP}V{bottom}" stroke="#eee"/>'
        yield f'<text x="{left}" y="{TOP - 6}" text-anchor="middle" fill="#555">{10.0**power:,g}</text>'


def _bar(row: Json, middle: float) -> Iterator[str]:
    colour = COLOURS[row["policy"]]
    least, greatest = _at(row["least"]), _at(row["greatest"])
    yield f'<path d="M{least} {middle:g}H{greatest}" stroke="{colour}" stroke-width="3" stroke-opacity="0.45"/>'
    yield f'<circle cx="{_at(row["mean"])}" cy="{middle:g}" r="4" fill="{colour}"/>'
