"""Draws docs/demo.svg: how `make demo` leaves the GPUs.

Takes the bars that the demo prints, which a test holds against a run of it; returns the picture. Each partition is as
wide as its memory is of its GPU's.
"""

import re
from html import escape

BARS = """\
a100   GPU 0  [10gb notebook-a] [10gb notebook-b] [18gb notebook-c]
a30    GPU 0  [2g.12gb@0 vision]
h100   GPU 0  [1g.10gb@0 embed-a] [1g.10gb@1 embed-b] [2g.20gb@2 rerank] [3g.40gb@4 chat-a]
h100   GPU 1  [1g.10gb@0 embed-c] [1g.20gb@2 summarise] [3g.40gb@4 chat-b]
"""
MEMORY_GB = {"a100": 40, "a30": 24, "h100": 80}
SLICES = {"a30": 4, "h100": 8}
WIDE, HIGH, LEFT, STEP = 880, 34, 110, 52
COLOURS = {"mig": "#2f6f9f", "mps": "#7a5195"}
_PARTITION = re.compile(r"\[(?:\d+g\.)?(\d+)gb(?:@(\d+))? (\S+)\]")


def page() -> str:
    """The picture as text."""
    rows = BARS.splitlines()
    parts = [part for number, row in enumerate(rows) for part in _row(number * STEP + 8, row)]
    size = f"{LEFT + WIDE + 10} {len(rows) * STEP + 8}"
    title = "The GPUs of three nodes after make demo: each pod has a partition of the size that it requested"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-family="sans-serif" font-size="13">',
            f"<title>{title}</title>",
            '<rect width="100%" height="100%" fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _row(top: int, row: str) -> list[str]:
    node, gpu = row.split(maxsplit=1)[0], row[7:12]
    label = f'<text x="8" y="{top + 22}" fill="#222222">{node}  {gpu}</text>'
    frame = f'<rect x="{LEFT}" y="{top}" width="{WIDE}" height="{HIGH}" fill="#eeeeee" stroke="#999999"/>'
    found, taken = [label, frame], 0.0
    for partition in _PARTITION.finditer(row):
        share = int(partition[1]) / MEMORY_GB[node]
        start = int(partition[2]) / SLICES[node] if partition[2] else taken
        taken = start + share
        x, width = LEFT + round(start * WIDE), round(share * WIDE) - 2
        colour = COLOURS["mig" if partition[2] else "mps"]
        words = escape(partition[0].strip("[]").replace("@", " at "))
        found.append(f'<rect x="{x + 1}" y="{top + 1}" width="{width}" height="{HIGH - 2}" rx="3" fill="{colour}"/>')
        name, size = partition[3], words.split(" ")[0]
        text = f"{size} {name}" if width > 130 else name
        found.append(f'<text x="{x + width / 2:g}" y="{top + 22}" fill="#ffffff" text-anchor="middle">{text}</text>')
    return found
