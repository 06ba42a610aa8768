"""Stands in for NVIDIA's config-manager, the sidecar that chooses one key of a ConfigMap by a label of the node.

Takes a projected volume, where its choice lies, and how to signal the plugin; `start` is a start of the process,
`observe` what its informer brings. As the real program (v0.19.0 to v0.20.0) it acts on "no label" at each start,
unless the API server answers before its first look; it ignores new content of the same file, cannot mend a link that
dangles, and ends on every error, after the link was switched as well. Must never be kinder than that program, on which
a test runs the same cases. It is set up as by NVIDIA's chart, without a default.
"""

import os
from collections.abc import Callable
from pathlib import Path

from sandbox.nvidia_plugin.projection import ConfigMapVolume

MOUNTED = Path("/available-configs")
NAMED = "default"
Signal = Callable[[], str | None]
"""Sends it; returns why that failed, or None."""


class Ended(Exception):  # noqa: N818 - the program exits 1; the text is its last line
    """What it logs before it exits."""


class ConfigManager:
    """One process, and what it leaves behind: `chosen` outlives it, as an emptyDir outlives a container."""

    def __init__(self, volume: ConfigMapVolume, chosen: Path, *, signal: Signal) -> None:
        self.volume = volume
        self.chosen = chosen
        self.running = False
        self.ended: str | None = None
        """The last line of a process that exited 1."""
        self.sent = 0
        """Signals that arrived."""
        self._signal = signal
        self._handled: str | None = None

    def start(self, first: str = "") -> None:
        """The first look at the label does not wait for one: `first` is what it finds."""
        self.running, self.ended, self._handled = True, None, None
        self.observe(first)

    def run_once(self) -> None:
        """The init container, with ONESHOT: it ends before it sees the label, and sends no signal."""
        self.ended = None
        self._try("", None)

    def observe(self, label: str) -> None:
        """The label's value as the API server has it; only another one than the last acts."""
        if self.running and label != self._handled:
            self._handled = label
            self.running = self._try(label, self._signal)

    def stop(self) -> None:
        """It is killed."""
        self.running = False

    def _try(self, label: str, signal: Signal | None) -> bool:
        try:
            if self._switch(self._choose(label)) and signal is not None:
                self._send(signal)
        except Ended as end:
            self.ended = str(end)
        return self.ended is None

    def _choose(self, label: str) -> str:
        """A key."""
        keys = self.volume.keys()
        if not keys:
            raise Ended("no configuration files available")
        if label and label not in keys:
            raise Ended(f"specified config {label} does not exist")
        if label or NAMED in keys:
            return label or NAMED
        if len(keys) > 1:
            raise Ended("no config was set, no default was provided, and all fallbacks failed")
        return keys.pop()

    def _switch(self, key: str) -> bool:
        """Whether the link leads to another file now."""
        target = MOUNTED / key
        present = self._real(self.chosen)
        if present is not None:
            if present == self._real(target):
                return False
            self.chosen.unlink()
        try:
            self.chosen.symlink_to(target)
        except FileExistsError as error:
            raise Ended(f"error creating symlink: symlink {target} {self.chosen}: file exists") from error
        return True

    def _send(self, signal: Signal) -> None:
        lost = signal()
        if lost is not None:
            raise Ended(lost)
        self.sent += 1

    def _real(self, path: Path) -> Path | None:
        """Where a path leads, links followed as the container sees them; None where nothing is."""
        if path.is_symlink():
            path = Path(os.readlink(path))
        if path.is_relative_to(MOUNTED):
            path = self.volume.folder / path.relative_to(MOUNTED)
        return path.resolve() if path.exists() else None
