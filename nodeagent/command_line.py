"""The command line that device plugin and MPS supervisor share: where their files are, and how they log."""

import argparse
from pathlib import Path

from kube.logs import FORMATS, LEVELS
from partitioning import __version__


def parser(program: str, description: str, example: str) -> argparse.ArgumentParser:
    """`example` are the arguments of a call that works."""
    command = f"gpuplan-nodeagent {program}"
    found = argparse.ArgumentParser(
        prog=command,
        description=description,
        epilog=f"examples:\n  {command} {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--version", action="version", version=f"gpuplan-nodeagent {__version__}")
    found.add_argument("--state-dir", type=Path, default=Path("/var/lib/gpuplan"), help="shared with the node agent")
    mps_root = Path("/run/gpuplan/mps")
    found.add_argument("--mps-root", type=Path, default=mps_root, help="pipe directories of the MPS daemons")
    found.add_argument("--log-level", default="info", choices=LEVELS)
    found.add_argument("--log-format", default="text", choices=FORMATS)
    return found
