"""What the agent says of the plugin's Allocates: `seen_free.json`, alongside the plugin's ledger.

Which devices were seen free since they were handed out, by device id with the time that the ledger has: a later
Allocate of the same id is another one, and has no mark. And which pod alone has a device that was handed out again
before it was seen free, by device id with the UID that the kubelet has and that time: a static pod's UID comes again.
And which ledger the agent has read, so that the plugin knows when it was deleted, or an older one was put back. Written
by the agent alone. A file that cannot be read says nothing. Decides nothing.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

from pydantic import TypeAdapter

from nodeagent.handover.config import NO_LEDGER, LedgerMark, PluginFiles
from nodeagent.handover.files import read_json, wire, write_json


@wire
class SeenFree:
    """The file. Times are epoch seconds."""

    allocations: Mapping[str, float] = field(default_factory=dict)
    alone: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    ledger: LedgerMark = NO_LEDGER
    version: Literal[1] = 1


_SEEN_FREE = TypeAdapter(SeenFree)


def write_seen_free(files: PluginFiles, seen: SeenFree) -> None:
    """Raises OSError."""
    write_json(files.seen_free, _SEEN_FREE, seen)


def read_seen_free(files: PluginFiles) -> SeenFree:
    found = read_json(files.seen_free, _SEEN_FREE)
    return found if isinstance(found, SeenFree) else SeenFree()
