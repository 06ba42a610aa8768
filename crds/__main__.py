"""`python -m crds`: print the CRD; `--write` renews the YAML in this folder; `--check` fails when it is stale."""

import argparse
import sys
from pathlib import Path

from crds.definition import FILE_NAME, text

FILE = Path(__file__).parent / FILE_NAME


def main(argv: list[str] | None = None) -> int:
    """Run the command; 1 when --check finds a stale file."""
    parser = argparse.ArgumentParser(prog="python -m crds", description=__doc__)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--write", action="store_true")
    choice.add_argument("--check", action="store_true")
    arguments = parser.parse_args(argv)
    if arguments.write:
        FILE.write_text(text())
    elif arguments.check:
        if not FILE.exists() or FILE.read_text() != text():
            print(f"crds/{FILE_NAME} is stale: run `python -m crds --write`", file=sys.stderr)
            return 1
    else:
        print(text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
