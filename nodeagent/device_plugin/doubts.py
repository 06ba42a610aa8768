"""Finds devices that a pod may hold of which the kubelet has no record: they are Unhealthy from the first list on.

A kubelet that lost its checkpoint takes every device for free, and may give a held one away before any agent has
noticed, or runs. In doubt is what the ledger handed out in this boot, the checkpoint does not show, and the agent has
not marked as seen free since. Judged for each kubelet, or process of ours, before the first registration, and again
once the kubelet has written its checkpoint, which it may have refused to read; from then on doubts only end, for the
kubelet forgets ended pods. Must never doubt anything else: with whole records a restart changes nothing on offer.
"""

import json
from pathlib import Path

from nodeagent.device_plugin.ledger import Ledger
from nodeagent.handover.config import PluginFiles
from nodeagent.handover.files import Identity, identity
from nodeagent.handover.seen_free import read_seen_free


class Doubts:
    def __init__(self, files: PluginFiles, checkpoint: Path, ledger: Ledger) -> None:
        self._files, self._checkpoint, self._ledger = files, checkpoint, ledger
        self._kubelet: Identity | None = None
        self._inherited: tuple[Identity | None] | None = None
        """The checkpoint that this kubelet began with, until it has written its own."""
        self._ids: frozenset[str] = frozenset()

    def judge(self, kubelet: Identity | None) -> frozenset[str]:
        """The ids in doubt; `kubelet` is its socket. From one thread."""
        found = identity(self._checkpoint)
        new = kubelet not in (None, self._kubelet)
        written = not new and self._inherited is not None and found != self._inherited[0]
        if new:
            self._kubelet, self._inherited = kubelet, (found,)
        elif written:
            self._inherited = None
        if new or written:
            self._ids = self.unmarked() - self._shown()
        elif self._ids:
            self._ids &= self.unmarked() - self._shown()
        return self._ids

    def unmarked(self) -> frozenset[str]:
        """What was handed out in this boot, and not seen free since. From any thread."""
        marks = read_seen_free(self._files)
        return frozenset(entry.id for entry in self._ledger.of_this_boot() if marks.get(entry.id) != entry.at)

    def _shown(self) -> set[str]:
        """Nothing, where it is not there or cannot be read: the kubelet goes on without it then."""
        try:
            rows = json.loads(self._checkpoint.read_text(encoding="utf-8"))["Data"]["PodDeviceEntries"] or ()
            return {str(i) for row in rows for ids in (row["DeviceIDs"] or {}).values() for i in ids or ()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return set()
