"""Declares a command whose help ends with examples that work unchanged, and the files that it reads."""

import argparse
from collections.abc import Sequence
from typing import Any


def add_command(commands: Any, name: str, text: str, *, examples: Sequence[str]) -> argparse.ArgumentParser:
    """One command; `text` is its line in the list of commands and the first sentence of its own help."""
    added: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog="\n  ".join(["examples:", *examples]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return added


def add_files(command: argparse.ArgumentParser, what: str) -> None:
    """The option that names what a command reads."""
    command.add_argument(
        "-f", "--filename", action="extend", nargs="+", required=True, metavar="FILE",
        help=f"{what}: files, folders, or - for standard input",
    )  # fmt: skip
