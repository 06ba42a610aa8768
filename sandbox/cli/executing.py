"""Runs `gpuplan sandbox exec`: a program of one's own sees the simulated GPUs of a node of a running sandbox.

Takes the file with the node's GPUs and a command; the command loads a real `libnvidia-ml.so.1` that shows them.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

from cli.examples import add_command
from sandbox.cli.breaking import gpus_of


def add_exec(kinds: Any) -> None:
    """Declare `sandbox exec`."""
    parser = add_command(
        kinds,
        "exec",
        "run a program that loads NVIDIA's management library on the GPUs of a running sandbox (needs a C compiler)",
        examples=("gpuplan sandbox exec /tmp/gpuplan-…/n0/gpus.json nvidia-mig-parted export",),
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="gpus.json of a node, in the folder that `up` names")
    parser.add_argument("program", metavar="COMMAND")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    parser.set_defaults(run=execute)


def execute(arguments: argparse.Namespace) -> int:
    gpus_of(arguments.file)
    words = [str(arguments.file), arguments.program, *arguments.arguments]
    return subprocess.run([sys.executable, "-m", "sandbox.driver.library", *words], check=False).returncode
