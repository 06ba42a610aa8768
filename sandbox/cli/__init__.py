"""`gpuplan sandbox …`: declares the commands that need the packages of the `sandbox` extra."""

import argparse

from sandbox.cli import commands, demo


def declare(sandbox: argparse.ArgumentParser) -> None:
    """Add `up`, `run` and `demo` to the parser of `gpuplan sandbox`."""
    kinds = sandbox.add_subparsers(dest="sandbox_command", required=True, metavar="COMMAND")
    commands.add_up(kinds)
    commands.add_run(kinds)
    demo.add_demo(kinds)
