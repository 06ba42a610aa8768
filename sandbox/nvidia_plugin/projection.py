"""Writes a ConfigMap volume as kubelet's atomic writer does: all keys change in one rename.

Takes a folder and the data; makes a new `..N` folder, moves `..data` to it, then adds and removes the links of single
keys, then removes the old folder. Data that is already there changes nothing. Must never write through an old link.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

DATA = "..data"


class ConfigMapVolume:
    """One volume of one pod; it begins empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._projections = 0
        folder.mkdir(parents=True)

    def project(self, data: Mapping[str, str]) -> None:
        """What the ConfigMap holds now."""
        if self._projections and data == self._shown():
            return
        self._projections += 1
        written = self.folder / f"..{self._projections}"
        written.mkdir()
        for key, text in data.items():
            (written / key).write_text(text)
        old = self._current()
        (self.folder / "..data_tmp").symlink_to(written.name)
        (self.folder / "..data_tmp").rename(self.folder / DATA)
        for key in sorted(data):
            if not (self.folder / key).is_symlink():
                (self.folder / key).symlink_to(f"{DATA}/{key}")
        for key in self.keys() - data.keys():
            (self.folder / key).unlink()
        if old is not None:
            shutil.rmtree(old)

    def keys(self) -> set[str]:
        """As a container lists them: links of removed keys are gone."""
        return {path.name for path in self.folder.iterdir() if not path.name.startswith("..")}

    def _current(self) -> Path | None:
        link = self.folder / DATA
        return self.folder / os.readlink(link) if link.is_symlink() else None

    def _shown(self) -> dict[str, str]:
        return {key: (self.folder / key).read_text() for key in self.keys()}
