"""Finds devices that an earlier pod may hold: no pod gets them, or no container starts with them yet.

Of some the kubelet has no record: they are Unhealthy from the first list on.
A kubelet that lost its checkpoint takes every device for free, and may give a held one away before any agent has
noticed, or runs. In doubt is what the ledger handed out in this boot, the checkpoint does not show, and the agent has
not marked as seen free since. Judged for each kubelet, or process of ours, before the first registration, and again
once the kubelet has written its checkpoint, which it may have refused to read; from then on doubts only end, for the
kubelet forgets ended pods. Must never doubt anything else: with whole records a restart changes nothing on offer.

Others the kubelet gave to a further pod before the agent had seen them free: a container starts with such a one when
the agent has marked its pod as the only one that has it.
"""

import json
from collections.abc import Collection, Mapping
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
        self.recorded: frozenset[str] = frozenset()
        """Ids that the checkpoint names with which this kubelet began: it admits their pods again."""

    def judge(self, kubelet: Identity | None) -> frozenset[str]:
        """The ids in doubt; `kubelet` is its socket. From one thread."""
        found = identity(self._checkpoint)
        new = kubelet not in (None, self._kubelet)
        written = not new and self._inherited is not None and found != self._inherited[0]
        if new:
            self._kubelet, self._inherited, self.recorded = kubelet, (found,), frozenset(pods_by_id(self._checkpoint))
        elif written:
            self._inherited = None
        if new or written or self._ids:
            doubted = self.unmarked() - pods_by_id(self._checkpoint).keys()
            self._ids = doubted if new or written else self._ids & doubted
        return self._ids

    def shared(self, ids: Collection[str]) -> str:
        """The first one that an earlier pod may still have, by what the agent says; from any thread."""
        again = {entry.id: entry.at for entry in self._ledger.of_this_boot() if entry.again and entry.id in ids}
        if not again:
            return ""
        named = {i: {uid} for i, (uid, at) in read_seen_free(self._files).alone.items() if again.get(i) == at}
        pods = pods_by_id(self._checkpoint)
        return next((i for i in sorted(again) if i not in named or pods.get(i) != named[i]), "")

    def unmarked(self) -> frozenset[str]:
        """What was handed out in this boot, and not seen free since. From any thread."""
        marks = read_seen_free(self._files).allocations
        return frozenset(entry.id for entry in self._ledger.of_this_boot() if marks.get(entry.id) != entry.at)


def pods_by_id(checkpoint: Path) -> Mapping[str, set[str]]:
    """UIDs by the id of a device, as the kubelet's checkpoint has them.

    Nothing, where it is not there or cannot be read: the kubelet goes on without it then.
    """
    found: dict[str, set[str]] = {}
    try:
        for row in json.loads(checkpoint.read_text(encoding="utf-8"))["Data"]["PodDeviceEntries"] or ():
            for i in (i for ids in (row["DeviceIDs"] or {}).values() for i in ids or ()):
                found.setdefault(str(i), set()).add(str(row["PodUID"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    return found
