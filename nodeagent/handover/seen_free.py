"""The agent's marks on Allocates whose device it has seen free since: `seen_free.json`, alongside the plugin's ledger.

Written by the agent alone, by device id with the time that the ledger has: a later Allocate of the same id is another
one, and has no mark. A file that cannot be read has no marks. Decides nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter, with_config

from nodeagent.handover.config import PluginFiles
from nodeagent.handover.files import WIRE, read_json, write_json


@with_config(WIRE)
@dataclass(frozen=True, slots=True, kw_only=True)
class _SeenFreeFile:
    allocations: Mapping[str, float]
    version: Literal[1]


_SEEN_FREE = TypeAdapter(_SeenFreeFile)


def write_seen_free(files: PluginFiles, marks: Mapping[str, float]) -> None:
    write_json(files.seen_free, _SEEN_FREE, _SeenFreeFile(allocations=dict(sorted(marks.items())), version=1))


def read_seen_free(files: PluginFiles) -> Mapping[str, float]:
    found = read_json(files.seen_free, _SEEN_FREE)
    return found.allocations if isinstance(found, _SeenFreeFile) else {}
