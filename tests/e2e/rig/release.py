"""What `make release` makes of this checkout, in the cache: made again where the sources are others."""

import fcntl
import hashlib
import os
import shutil
import time
from pathlib import Path

from deploy.release.__main__ import make
from partitioning import __version__
from tests.e2e.rig.controlplane import Places

ROOT = Path(__file__).parents[3]
SOURCES = ("deploy", "requirements", "partitioning", "kube", "crds", "controller", "nodeagent", "cli")
KEPT_SECONDS = 86400.0
"""Another run of the suites may still install from it."""


def release_folder(places: Places, helm: Path) -> Path:
    """The folder of the release; without a repository, as one that is not published yet."""
    target = places.cache / f"release-{_digest()}"
    places.cache.mkdir(parents=True, exist_ok=True)
    with (places.cache / "release.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if not target.exists():
            for old in places.cache.glob("release-*"):
                if old.is_dir() and time.time() - old.stat().st_mtime > KEPT_SECONDS:
                    shutil.rmtree(old)
            part = places.cache / f"release-part-{os.getpid()}"
            make(__version__, "", part, helm)
            part.rename(target)
    return target


def _digest() -> str:
    found = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                found.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return found.hexdigest()[:12]
