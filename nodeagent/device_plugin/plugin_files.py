"""Follows the agent's config file and answers it: reads `config.json`, writes `loaded.json`.

A config that cannot be read changes nothing: the last good one stays, and `problem` is the reason. Every new
`config.json` is answered by a new `loaded.json`, also one with the old text: the agent compares the files' times. Never
decides what is in force.
"""

import logging
import uuid
from collections.abc import Mapping
from pathlib import Path

from kube.change_log import ChangeLog
from nodeagent.device_plugin.ledger import Ledger
from nodeagent.handover.config import Loaded, PluginConfig, PluginFiles, Problem, read_config, read_loaded, write_loaded
from nodeagent.handover.files import Identity, Unreadable, identity

log = logging.getLogger(__name__)


class ConfigReader:
    def __init__(self, files: PluginFiles) -> None:
        self._files, self._change_log = files, ChangeLog(log)
        self.config = PluginConfig()
        """The last one that was accepted; empty at first."""
        self.has_accepted = False
        self.file: Identity | None = None
        """Of the last file that could be read."""
        self.problem = ""

    def read(self) -> PluginConfig | None:
        """Another config than the accepted one, if there is one. It is returned until it is accepted."""
        file = identity(self._files.config)  # before reading: a newer text under an older identity is read again
        found = read_config(self._files)
        if isinstance(found, PluginConfig):
            self.file, self.problem = file, ""
            self._change_log.is_new("")
            return found if not self.has_accepted or found != self.config else None
        if isinstance(found, Unreadable):
            self.problem = str(found)
        elif self.has_accepted:
            self.problem = f"{self._files.config.name} is gone"
        if self._change_log.is_new(self.problem):
            log.error("config not loaded, the last good one stays in force: %s", self.problem)
        return None

    def accept(self, config: PluginConfig) -> None:
        """The lists have it now."""
        self.config, self.has_accepted = config, True


class LoadedFile:
    """Owned by this process; the agent reads it."""

    def __init__(self, files: PluginFiles, *, mps_root: Path, ledger: Ledger) -> None:
        self._files, self._mps_root, self._ledger = files, mps_root, ledger
        self._boot_token = str(uuid.uuid4())
        self._in_force = ""
        self._answered: Identity | None = None
        self._written: Loaded | None = None

    def registered_before(self) -> tuple[str, ...]:
        """Resources that an earlier process served; ask before the first `write`."""
        earlier = read_loaded(self._files)
        return tuple(earlier.registered) if isinstance(earlier, Loaded) else ()

    def write(
        self, reader: ConfigReader, *, settled: bool, registered: Mapping[str, bool], problems: tuple[Problem, ...]
    ) -> None:
        """Confirm the accepted config if everything is `settled`, and report the rest as it is now."""
        if settled:
            self._in_force = reader.config.hash
        answering = settled and reader.file != self._answered
        loaded = Loaded(
            hash=self._in_force,
            boot_token=self._boot_token,
            registered=registered,
            errors=problems,
            mps_root=str(self._mps_root),
            book=self._ledger.book,
            named=tuple(sorted(self._ledger.named)),
        )
        if loaded == self._written and not answering:
            return
        try:
            write_loaded(self._files, loaded)
        except OSError as error:
            log.error("%s was not written: %s", self._files.loaded, error)
            return  # the next pass tries again
        self._written = loaded
        if answering:
            self._answered = reader.file

    def withdraw(self) -> None:
        """From the next `write` on, nothing is in force."""
        self._in_force = ""
