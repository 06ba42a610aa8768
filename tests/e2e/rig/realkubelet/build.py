"""Builds the scripted runtime once from `cri/` with Go, and caches it outside the repository.

Takes where to cache, and the environment of `go`; returns the program's path, or what is missing. The folder is named
by its sources, so that another revision never runs an older program.
"""

import fcntl
import hashlib
import platform
import shutil
from pathlib import Path

from tests.e2e.rig.controlplane import GoBuild, Missing, Places

SOURCES = Path(__file__).parent / "cri"
PROGRAM = "scripted-cri"


def scripted_runtime(places: Places) -> Path | Missing:
    """The program; the first call after a change builds it."""
    target = places.cache / f"{PROGRAM}-{source_digest()}"
    if target.exists():
        return target
    go = shutil.which("go", path=dict(places.environ).get("PATH"))
    if go is None:
        return Missing(
            f"{PROGRAM} is not built yet, and there is no go on PATH. Install Go 1.26 or newer (https://go.dev/dl/)"
        )
    places.cache.mkdir(parents=True, exist_ok=True)
    with (places.cache / f"{PROGRAM}.lock").open("w") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        return target if target.exists() else _build(go, target, places)


def _build(go: str, target: Path, places: Places) -> Path | Missing:
    unfinished = target.with_suffix(".new")
    log = places.cache / f"{PROGRAM}.log"
    build = GoBuild(name=PROGRAM, go=go, sources=SOURCES, environ=dict(places.environ), log=log)
    failed = build.make(str(unfinished), ".", ("-s", "-w"))
    if failed:
        return failed
    for older in places.cache.glob(f"{PROGRAM}-*"):
        if older != unfinished:
            older.unlink()
    unfinished.rename(target)
    return target


def source_digest() -> str:
    parts = [platform.system(), platform.machine()]
    parts += [path.read_text() for path in sorted(SOURCES.iterdir()) if path.suffix in (".go", ".mod", ".sum")]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
