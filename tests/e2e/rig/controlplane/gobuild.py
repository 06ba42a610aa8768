"""Go programs built from sources of ours that pin everything: first everything is fetched, then it is compiled.

Takes the go command, a folder with go.mod and go.sum, flags; returns programs in a folder, or why there are none: what
could not be fetched is missing here, and what was fetched and does not build is broken. The last output of go is in a
log file. It never changes the sources, and never takes a module whose checksum go.sum does not hold.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import TimeoutExpired

from tests.e2e.rig.controlplane.leashed import run

FETCH_SECONDS = 900.0
FETCH_TRIES = 3
BUILD_SECONDS = 2400.0
LAST_LINES = 5
_FORGED = re.compile(r"checksum mismatch|SECURITY ERROR")


@dataclass(frozen=True, slots=True)
class Missing:
    """Why there are no programs to run; `message` has the remedy."""

    message: str
    broken: bool = False
    """Nothing is missing, and still there is no program: a fault of ours, or of the source of the modules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoBuild:
    """One folder of sources and what to make of it."""

    name: str
    go: str
    sources: Path
    environ: Mapping[str, str]
    log: Path
    cgo: bool = False
    """With a C compiler; without, programs are static."""

    def make(self, out: str, packages: str, link_flags: Sequence[str]) -> Missing | None:
        """Fetch and compile; `out` and `packages` as go build takes them. None where all went well."""
        return self._fetch() or self._compile(out, packages, link_flags)

    def _fetch(self) -> Missing | None:
        deadline = time.monotonic() + FETCH_SECONDS
        for _ in range(FETCH_TRIES):  # each goes on where the one before was cut off
            code = self._go(["mod", "download"], deadline - time.monotonic())
            if code is None:
                return Missing(f"fetching the sources of {self.name} took more than {FETCH_SECONDS:.0f} s")
            if code == 0:
                return None
            if _FORGED.search(self._said()):
                return Missing(f"what was fetched for {self.name} is not what is pinned: {self._end()}", broken=True)
        return Missing(
            f"the sources of {self.name} could not be fetched: {self._end()}. "
            "Go takes them from the module proxy that GOPROXY names"
        )

    def _compile(self, out: str, packages: str, link_flags: Sequence[str]) -> Missing | None:
        flags = ["-trimpath", "-mod=readonly", f"-ldflags={' '.join(link_flags)}"]
        code = self._go(["build", *flags, "-o", out, packages], BUILD_SECONDS)
        if code is None:
            return Missing(f"go build of {self.name} took more than {BUILD_SECONDS:.0f} s; run again to go on")
        return Missing(f"go build of {self.name} failed: {self._end()}", broken=True) if code else None

    def _go(self, arguments: Sequence[str], seconds: float) -> int | None:
        """Its exit code, None when it was stopped."""
        environ = {**self.environ, "CGO_ENABLED": str(int(self.cgo)), "GOWORK": "off"}
        with self.log.open("wb") as output:
            try:
                done = run(
                    [self.go, *arguments],
                    seconds=max(seconds, 0.0),
                    cwd=self.sources,
                    env=environ,
                    stdout=output,
                    stderr=output,
                )
            except TimeoutExpired:
                return None
        return done.returncode

    def _said(self) -> str:
        return self.log.read_text(errors="replace")

    def _end(self) -> str:
        lines = [line for line in self._said().strip().splitlines() if not line.startswith("go: downloading ")]
        return f"{' / '.join(lines[-LAST_LINES:])} (all of it in {self.log})"
