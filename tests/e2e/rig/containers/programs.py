"""The programs that containers need: containerd built from pinned Go modules, the others from Debian's packages.

Takes where to look and returns paths that exist, or what is missing. It takes no container image from anywhere.
"""

from dataclasses import dataclass
from pathlib import Path

from tests.e2e.rig.containers.debian import unpacked
from tests.e2e.rig.controlplane import Missing, Places
from tests.e2e.rig.controlplane.binaries import Report, go_programs

CONTAINERD = "containerd-v2.2.9"
"""The first line of releases with Container Device Interface on by default; 1.6 drops CDI names without an error."""
DEBIAN = ("runc", "containernetworking-plugins", "busybox-static")
MPS = ("nvidia-cuda-mps",)
BASH = ("bash-static",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """Folders and programs of a node with containers."""

    containerd: Path
    """Folder of containerd, its shim and ctr."""
    runc: Path
    cni: Path
    """Folder of the network plugins."""
    busybox: Path
    mps: Path
    """NVIDIA's own nvidia-cuda-mps-control."""
    bash: Path
    """Static, as images of NVIDIA's have it."""


def find(places: Places, report: Report) -> Programs | Missing:
    """The first call builds and downloads what is not in the cache."""
    containerd = go_programs(CONTAINERD, places, report)
    if isinstance(containerd, Missing):
        return containerd
    debian = unpacked("debian-containers", DEBIAN, places)
    if isinstance(debian, Missing):
        return debian
    mps = unpacked("debian-mps", MPS, places)
    if isinstance(mps, Missing):
        return mps
    bash = unpacked("debian-bash", BASH, places)
    if isinstance(bash, Missing):
        return bash
    return Programs(
        containerd=containerd,
        runc=debian / "usr/sbin/runc",
        cni=debian / "usr/lib/cni",
        busybox=debian / "bin/busybox",
        mps=mps / "usr/bin/nvidia-cuda-mps-control",
        bash=bash / "bin/bash-static",
    )
