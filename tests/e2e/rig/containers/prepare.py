"""Everything that containers need and that comes from outside: programs, and the lower layers of the images.

Takes where to cache and returns what is there, or what is missing. It is run before `enter.sh`, whose network ends at
the machine: `python -m tests.e2e.rig.containers`. The layers are named by what they are made of.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.rig.containers import images
from tests.e2e.rig.containers.programs import Programs, find
from tests.e2e.rig.controlplane import Binaries, Missing, Places, obtain
from tests.e2e.rig.controlplane.binaries import SERVERS, Report, helm
from tests.e2e.rig.nvidia import programs as nvidia
from tests.e2e.rig.release import release_folder

ROOT = Path(__file__).parents[4]
DEPENDENCIES = ("requirements/image.txt", "deploy/image/dependencies.sh")
"""What the layer of dependencies is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Programs and layers in the cache."""

    programs: Programs
    kubernetes: Binaries
    helm: Path
    shell: Path
    python: Path
    dependencies: Path
    release: Path
    device_plugin: nvidia.Shipped | Missing
    dra_driver: nvidia.Shipped | Missing
    """NVIDIA's; missing where there is no C compiler for the driver's library."""


def prepare(version: str | None, places: Places, report: Report) -> Prepared | Missing:
    """The first call takes minutes."""
    kubernetes = obtain(version, places, report=report, programs=(*SERVERS, "kubelet"))
    if isinstance(kubernetes, Missing):
        return kubernetes
    helm_program = helm(places, report=report)
    if isinstance(helm_program, Missing):
        return helm_program
    programs = find(places, report)
    if isinstance(programs, Missing):
        return programs
    missing = [name for name in ("unshare", "ip") if shutil.which(name) is None]
    if missing:
        return Missing(f"{' and '.join(missing)} are not on PATH: install util-linux and iproute2")
    cache = places.cache
    return Prepared(
        programs=programs,
        kubernetes=kubernetes,
        helm=helm_program,
        shell=images.cached(cache / "layer-shell.tar", lambda root: images.shell_root(root, programs.busybox)),
        python=images.cached(cache / f"layer-python-{_digest(sys.version)}.tar", images.python_root),
        dependencies=images.cached(
            cache / f"layer-dependencies-{_digest(sys.version, *(text(name) for name in DEPENDENCIES))}.tar",
            _dependencies,
        ),
        release=release_folder(places, helm_program),
        device_plugin=nvidia.shipped(nvidia.DEVICE_PLUGIN, places, report),
        dra_driver=nvidia.shipped(nvidia.DRA_DRIVER, places, report),
    )


def product_layer(target: Path) -> Path:
    """The product's packages and programs as a release lays them out."""
    scratch = target.with_suffix(".root")
    _install("product.sh", scratch)
    return images.layer(scratch, target)


def text(name: str) -> str:
    return (ROOT / name).read_text()


def _dependencies(root: Path) -> None:
    _install("dependencies.sh", root)
    images.linked(set(root.rglob("*.so")), root)


def _install(script: str, root: Path) -> None:
    # The interpreter of the tests, whose standard library the image has.
    uv = {"UV": str(Path(sys.executable).with_name("uv")), "PLATFORM": f"--python {sys.executable}"}
    subprocess.run(
        [ROOT / "deploy/image" / script, root / "opt/gpuplan"],
        check=True,
        timeout=600,
        env={**os.environ, **uv, "PYTHON": sys.executable},
    )


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
