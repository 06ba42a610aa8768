"""`--control-plane embedded|real`: what a simulated cluster is to stand on.

In: the words of a command line and the environment. Out: a control plane that is not started yet, or what is missing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from sandbox.controlplane.binaries import Places, Report, obtain
from sandbox.controlplane.gobuild import Missing
from sandbox.controlplane.plane import RealControlPlane
from sandbox.controlplane.seam import ControlPlane, Embedded
from sandbox.controlplane.tenants import MANIFESTS, RealServers

Kind = Literal["embedded", "real"]
KINDS: tuple[Kind, ...] = ("embedded", "real")


def choose(
    kind: Kind, version: str | None, *, environ: Mapping[str, str], home: Path, report: Report
) -> ControlPlane | Missing:
    """`version` is of Kubernetes and counts for the real one only; None is the current one."""
    if kind == "embedded":
        return Embedded()
    if not MANIFESTS.is_dir():
        return Missing(f"there are no manifests in {MANIFESTS}: the real control plane needs a checkout of gpuplan")
    programs = obtain(version, Places.of(environ, home), report=report)
    return programs if isinstance(programs, Missing) else RealServers(RealControlPlane(programs))
