"""The agent's memory of holders as it is on disk: `holdings.json` in the state directory.

Read once, when the agent starts, and written by `holdings` alone. A file that cannot be read is kept aside, so that its
loss is known. Decides nothing.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from nodeagent.handover.config import NO_LEDGER, LedgerMark
from nodeagent.handover.files import Unreadable, read_json, wire
from nodeagent.observed.pods import NodePod

log = logging.getLogger(__name__)


@wire
class Holding:
    """A pod that was observed with devices and not observed to end."""

    uid: str
    title: Annotated[str, Field(alias="pod")]
    grace_seconds: int
    ids: tuple[str, ...]
    earlier: tuple[str, ...] = ()
    """Ids that it was observed with before the List showed others under its name."""
    started: bool = False
    outside: bool = False

    @classmethod
    def of(cls, pod: NodePod, ids: Iterable[str], before: "Holding | None", earlier: Iterable[str] = ()) -> "Holding":
        started = pod.started or (before is not None and before.started)
        held = cls(uid=pod.uid, title=pod.title, grace_seconds=pod.grace_seconds, ids=tuple(sorted(ids)))
        return replace(held, earlier=tuple(sorted(earlier)), started=started, outside=pod.outside)

    def gone(self) -> NodePod:
        namespace, _, name = self.title.partition("/")
        pod = NodePod(uid=self.uid, namespace=namespace, name=name, grace_seconds=self.grace_seconds)
        return replace(pod, started=self.started, outside=self.outside)


@wire
class Memory:
    """What is on disk."""

    pods: tuple[Holding, ...] = ()
    answered: dict[str, float]
    """Ledger entries (id and time) whose pod was observed, or never came."""
    ended: tuple[str, ...] = ()
    """UIDs of ended pods that the checkpoint still mentions."""
    forgotten: tuple[str, ...] = ()
    """Ids that the List has lost while the pod that it showed with them lives: the kubelet takes them for free."""
    boot_id: str = ""
    ledger: LedgerMark = NO_LEDGER
    """The one that it belongs to, as of when this was written."""
    version: Literal[1] = 1


MEMORY = TypeAdapter(Memory)


def read_memory(path: Path, aside: Path) -> Memory:
    """An unreadable file is kept aside, where `lost_records` finds it after a restart too."""
    found = read_json(path, MEMORY)
    if isinstance(found, Unreadable):
        log.warning("%s; kept aside as %s: which pods hold devices is read from the kubelet's List", found, aside)
        path.replace(aside)
    return found if isinstance(found, Memory) else Memory(answered={})
