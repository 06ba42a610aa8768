"""Builds NVIDIA's programs, which load the driver's library themselves, once.

Takes where to look and returns a folder of programs, or what is missing. They need cgo and a C compiler, and symbols
that the driver may lack are bound when they are called.
"""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sandbox.driver.library.build import compiler
from tests.e2e.rig.controlplane import Missing, Places
from tests.e2e.rig.controlplane.binaries import PINS, Report, go_programs

FETCH_SECONDS = 300.0
MIG_PARTED = "mig-parted-v0.13.1"
TOOLKIT = "nvidia-container-toolkit-v1.20.2"
DEVICE_PLUGIN = "k8s-device-plugin-v0.19.1"
DRA_DRIVER = "dra-driver-nvidia-gpu-v0.5.0"


CHARTS = {
    DEVICE_PLUGIN: ("github.com/NVIDIA/k8s-device-plugin", "deployments/helm/nvidia-device-plugin"),
    DRA_DRIVER: ("sigs.k8s.io/dra-driver-nvidia-gpu", "deployments/helm/dra-driver-nvidia-gpu"),
}
"""The module that each is built from, and the folder in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """What a release of theirs consists of."""

    programs: Path
    sources: Path
    chart: Path


def shipped(module: str, places: Places, report: Report) -> Shipped | Missing:
    """The programs of a pinned module, and the chart that comes with their sources."""
    found = find(module, places, report)
    if isinstance(found, Missing):
        return found
    path, chart = CHARTS[module]
    sources = source_of(module, path, places)
    return Shipped(programs=found, sources=sources, chart=sources / chart)


def find(module: str, places: Places, report: Report = lambda _: None) -> Path | Missing:
    """The folder with the programs of a pinned module."""
    if compiler() is None:
        return Missing(
            "there is no C compiler (cc) on PATH; it makes the driver's library, and NVIDIA's programs need it"
        )
    return go_programs(module, places, report)


def source_of(module: str, path: str, places: Places) -> Path:
    """The folder of the sources of one of its requirements, which the build has fetched."""
    environ = {**dict(places.environ), "GOFLAGS": "-mod=readonly"}
    command = ["go", "mod", "download", "-json", path]
    done = subprocess.run(
        command, cwd=PINS / module, env=environ, capture_output=True, text=True, timeout=FETCH_SECONDS, check=True
    )
    return Path(json.loads(done.stdout)["Dir"])
