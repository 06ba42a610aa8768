"""The write-ahead journal: what the agent is about to do to a GPU, on disk before it does it.

One small file per GPU, with the plan's uid and generation. An intent that is found open was cut off somewhere between
the driver calls of one step; what is then observed says how far it came, and the next pass goes on from there for
whatever plan is the newest. Never replays anything.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from nodeagent.driver import DriverError, ObservedGpu
from nodeagent.plugin.files import Unreadable, read_json, write_json
from partitioning.layouts import Instance

VERSION = 1
log = logging.getLogger(__name__)


class Action(StrEnum):
    CREATE = "create"
    DESTROY = "destroy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """One step on one placement, for one generation of one plan."""

    action: Action
    placed: Instance
    plan_uid: str
    generation: int


class NotJournalledError(DriverError):
    """The intent could not be written down, so the driver was not asked."""

    kind = "journal"


class Journal:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def begin(self, gpu_uuid: str, intent: Intent) -> None:
        """On disk when this returns; raises NotJournalledError where that cannot be."""
        place = intent.placed
        body = {"action": str(intent.action), "profile": place.profile, "start": place.start, "size": place.size}
        plan = {"planUid": intent.plan_uid, "generation": intent.generation}
        try:
            write_json(self._path(gpu_uuid), {"version": VERSION, **plan, "intent": body})
        except OSError as error:
            raise NotJournalledError(f"writing down the {intent.action} of {place}", str(error)) from error

    def end(self, gpu_uuid: str) -> None:
        """The step is done, or was found not to have happened. An intent that cannot be removed is settled later."""
        try:
            self._path(gpu_uuid).unlink(missing_ok=True)
        except OSError as error:
            log.warning("the journal of %s was not ended: %s", gpu_uuid, error)

    def intent(self, gpu_uuid: str) -> Intent | None:
        """What was begun and not ended."""
        content = read_json(self._path(gpu_uuid))
        if content is None:
            return None
        if isinstance(content, Unreadable):
            log.warning("journal %s", content)
            return None
        try:
            body = content["intent"]
            return Intent(
                action=Action(body["action"]),
                placed=Instance(start=int(body["start"]), size=int(body["size"]), profile=str(body["profile"])),
                plan_uid=str(content["planUid"]),
                generation=int(content["generation"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            log.warning("journal of %s is not understood: %s", gpu_uuid, error)
            return None

    def settle(self, gpu: ObservedGpu) -> frozenset[Instance]:
        """End an intent that came to its end; else name the placement that was left half-made."""
        intent = self.intent(gpu.uuid)
        if intent is None or gpu.problem:
            return frozenset()
        standing = gpu.at(intent.placed)
        if standing is not None and standing.half_made:
            return frozenset({intent.placed})
        how = "was not begun" if (standing is None) == (intent.action is Action.CREATE) else "is done"
        log.info("GPU %d: the %s of %s that was cut off %s", gpu.index, intent.action, intent.placed, how)
        self.end(gpu.uuid)
        return frozenset()

    def _path(self, gpu_uuid: str) -> Path:
        return self._directory / f"{gpu_uuid}.json"
