"""Builds a Go program whose sources lie in this repository, once, and caches it outside the repository.

Takes a name, a folder of sources, where to cache and the environment of `go`; returns the program's path, or what is
missing. The path is named by the sources, so that another revision never runs an older program.
"""

import fcntl
import hashlib
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.rig.controlplane.binaries import Places
from tests.e2e.rig.controlplane.gobuild import GoBuild, Missing


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnProgram:
    """One folder with go.mod, go.sum and package main."""

    name: str
    sources: Path

    def obtain(self, places: Places) -> Path | Missing:
        """The program; the first call after a change builds it."""
        target = places.cache / self.file_name
        if target.exists():
            return target
        go = shutil.which("go", path=dict(places.environ).get("PATH"))
        if go is None:
            return Missing(
                f"{self.name} is not built yet, and there is no go on PATH. Install Go 1.26 or newer (https://go.dev/dl/)"
            )
        places.cache.mkdir(parents=True, exist_ok=True)
        with (places.cache / f"{self.name}.lock").open("w") as alone:
            fcntl.flock(alone, fcntl.LOCK_EX)
            return target if target.exists() else self._build(go, target, places)

    @property
    def file_name(self) -> str:
        """In the cache."""
        parts = [platform.system(), platform.machine()]
        suffixes = (".go", ".mod", ".sum")
        parts += [path.read_text() for path in sorted(self.sources.iterdir()) if path.suffix in suffixes]
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
        return f"{self.name}-{digest}"

    def _build(self, go: str, target: Path, places: Places) -> Path | Missing:
        unfinished = target.with_suffix(".new")
        log = places.cache / f"{self.name}.log"
        build = GoBuild(name=self.name, go=go, sources=self.sources, environ=dict(places.environ), log=log)
        failed = build.make(str(unfinished), ".", ("-s", "-w"))
        if failed:
            return failed
        for older in places.cache.glob(f"{self.name}-*"):
            if older != unfinished:
                older.unlink()
        unfinished.rename(target)
        return target
