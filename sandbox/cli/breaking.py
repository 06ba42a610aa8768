"""Runs `gpuplan sandbox break`: a GPU of a running sandbox fails, or is mended.

Takes the file with a node's simulated GPUs, changes one of them there, and ends: agents see it with their next call.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from cli.examples import add_command
from cli.manifests import ManifestError
from sandbox.driver.breaking import find_again, lose, remap_rows
from sandbox.driver.state import GpuState
from sandbox.driver.store import Store


def _mend(path: Path, uuid: str) -> None:
    find_again(path, uuid)
    remap_rows(path, uuid)


FAULTS: dict[str, Callable[[Path, str], None]] = {
    "lost": lose,
    "memory": partial(remap_rows, failed=True),
    "mended": _mend,
}


def add_break(kinds: Any) -> None:
    """Declare `sandbox break`."""
    parser = add_command(
        kinds,
        "break",
        "have a GPU of a running sandbox fail, or mend it",
        examples=("gpuplan sandbox break /tmp/gpuplan-…/n0/gpus.json 0 lost",),
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="gpus.json of a node, in the folder that `up` names")
    parser.add_argument("gpu", type=int, metavar="GPU", help="its index")
    parser.add_argument("fault", choices=FAULTS, help="lost: off the bus; memory: rows that cannot be remapped; mended")
    parser.set_defaults(run=break_gpu)


def gpus_of(file: Path) -> list[GpuState]:
    """Those of a node; raises ManifestError."""
    try:
        return Store(file).read()["gpus"]
    except (OSError, ValueError, KeyError) as error:
        raise ManifestError(f"{file}: no simulated GPUs can be read there: {error}") from error


def break_gpu(arguments: argparse.Namespace) -> int:
    gpus = gpus_of(arguments.file)
    if not 0 <= arguments.gpu < len(gpus):
        raise ManifestError(f"{arguments.file}: there is no GPU {arguments.gpu}, it has {len(gpus)}")
    FAULTS[arguments.fault](arguments.file, gpus[arguments.gpu]["uuid"])
    print(f"GPU {arguments.gpu}: {arguments.fault}")
    return 0
