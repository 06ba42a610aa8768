"""Declares `gpuplan sandbox …`, the commands that need the packages of the `sandbox` extra.

They run on the embedded control plane, unless a caller sets `control_plane` of the parsed arguments to another factory.
"""

import argparse
from typing import Any

from sandbox.cli import breaking, commands, demo, executing


def declare(sandbox: argparse.ArgumentParser) -> Any:
    """Add `up`, `run`, `break`, `exec` and `demo` to a parser; returns its subparsers."""
    kinds = sandbox.add_subparsers(dest="sandbox_command", required=True, metavar="COMMAND")
    commands.add_up(kinds)
    commands.add_run(kinds)
    breaking.add_break(kinds)
    executing.add_exec(kinds)
    demo.add_demo(kinds)
    return kinds
