"""The tools that sync manifests from Git, built from pinned Go modules: Argo CD's engine, Flux's kustomize-controller.

Takes where to cache; returns the program, or what is missing. Argo CD's own agent listens on every address, so its
engine runs in a small program of ours (`argo/`), which listens on none.
"""

from pathlib import Path

from tests.e2e.rig.controlplane import Missing, Places
from tests.e2e.rig.controlplane.binaries import Report, go_programs
from tests.e2e.rig.controlplane.ownbuild import OwnProgram

ARGO_SYNC = OwnProgram(name="argo-sync", sources=Path(__file__).parent / "argo")
FLUX = "kustomize-controller-v1.7.3"


def argo_sync(places: Places, report: Report) -> Path | Missing:
    """One sync with the engine of Argo CD."""
    if not (places.cache / ARGO_SYNC.file_name).exists():
        report("building Argo CD's engine with Go, once, which takes minutes")
    return ARGO_SYNC.obtain(places)


def kustomize_controller(places: Places, report: Report) -> Path | Missing:
    """Flux's controller of Kustomizations."""
    folder = go_programs(FLUX, places, report)
    return folder if isinstance(folder, Missing) else folder / "kustomize-controller"
