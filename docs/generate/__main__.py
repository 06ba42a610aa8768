"""`python -m docs.generate`: the pages, and the picture of the demo, that are made from tables in the code.

`--write` renews them, `--check` fails where one is stale. What a page says is in the code that it is made from.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from docs.generate import api, conditions, demo, metrics, reasons, settings
from docs.generate.tables import MADE

FOLDER = Path(__file__).parents[1]
PAGES: Mapping[str, Callable[[], str]] = {
    "api.md": api.page,
    "conditions.md": conditions.page,
    "demo.svg": demo.page,
    "metrics.md": metrics.page,
    "reasons.md": reasons.page,
    "settings.md": settings.page,
}


def main(argv: list[str] | None = None) -> int:
    """Run the command; 1 when --check finds a stale page."""
    parser = argparse.ArgumentParser(prog="python -m docs.generate", description=__doc__)
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--write", action="store_true")
    choice.add_argument("--check", action="store_true")
    arguments = parser.parse_args(argv)
    made = {FOLDER / name: text(name) for name in PAGES}
    stale = [path for path, content in made.items() if not path.is_file() or path.read_text() != content]
    if arguments.write:
        for path in stale:
            path.write_text(made[path])
    elif stale:
        names = ", ".join(f"docs/{path.name}" for path in stale)
        print(f"stale: {names}. Run `python -m docs.generate --write`", file=sys.stderr)
        return 1
    return 0


def text(name: str) -> str:
    """What is in the file."""
    return PAGES[name]() + (f"\n{MADE}\n" if name.endswith(".md") else "")


if __name__ == "__main__":
    sys.exit(main())
