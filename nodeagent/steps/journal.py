"""The write-ahead journal: what the agent is about to do to a GPU, on disk before it does it.

One small file per GPU holds its open intents, each with the plan's uid and generation. An intent that is found open was
interrupted somewhere between the driver calls of its step; there may be several, since a step that the driver refused
does not stop the next one. What is then observed shows how far each step came, and the next pass continues from there
for whatever plan is the newest. It also keeps since when a program has held open what was to be destroyed, so that an
agent that is restarted goes on with the tries, and DCGM leaves the node for them once. Never replays anything.
"""

import logging
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from kube.change_log import ChangeLog
from nodeagent.handover.files import Unreadable, read_json, wire, write_json
from nodeagent.hardware.driver import DriverError, ObservedGpu
from partitioning.layouts import Instance

log = logging.getLogger(__name__)


class Action(StrEnum):
    CREATE = "create"
    DESTROY = "destroy"


@wire
class Intent:
    """One step on one placement, for one generation of one plan."""

    action: Action
    placed: Instance
    spec_version: tuple[str, int]
    """The plan's uid and generation."""


@wire
class HeldOpen:
    """What the driver refused last, and since when; times are of the clock that starts with the machine."""

    attempted: str
    answer: str
    since: float
    over_at: float
    pause_seconds: float


@wire
class _File:
    intents: tuple[Intent, ...]
    held_open: HeldOpen | None = None
    version: Literal[1] = 1


_FILE, _NOTHING = TypeAdapter(_File), _File(intents=())


class NotJournalledError(DriverError):
    """The intent could not be written down, so the driver was not called."""

    kind = "journal"


class Journal:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._change_log = ChangeLog(log)

    def begin(self, gpu_uuid: str, intent: Intent) -> None:
        """On disk when this returns; raises NotJournalledError where that cannot be."""
        try:
            self._write(gpu_uuid, replace(self._read(gpu_uuid), intents=(*self._others(gpu_uuid, intent), intent)))
        except OSError as error:
            raise NotJournalledError(f"writing down the {intent.action} of {intent.placed}", str(error)) from error

    def end(self, gpu_uuid: str, intent: Intent) -> None:
        """The step is done, or was found not to have happened. An intent that cannot be removed is settled later."""
        self._shorten(gpu_uuid, replace(self._read(gpu_uuid), intents=self._others(gpu_uuid, intent)))

    def hold(self, gpu_uuid: str, held_open: HeldOpen | None) -> None:
        """None: nothing is held open any more. What cannot be written is forgotten with this process."""
        known = self._read(gpu_uuid)
        if known.held_open != held_open:
            self._shorten(gpu_uuid, replace(known, held_open=held_open))

    def held_open(self, gpu_uuid: str) -> HeldOpen | None:
        return self._read(gpu_uuid).held_open

    def intents(self, gpu_uuid: str) -> tuple[Intent, ...]:
        """Open intents, one for each placement, oldest first."""
        return self._read(gpu_uuid).intents

    def settle(self, gpu: ObservedGpu) -> frozenset[Instance]:
        """End the intents whose steps are done; return the placements that were left half-made."""
        left = set()
        for intent in self.intents(gpu.uuid) if not gpu.problem else ():
            found = gpu.at(intent.placed)
            if found is not None and found.half_made:
                left.add(intent.placed)
                continue
            how = "was not begun" if (found is None) == (intent.action is Action.CREATE) else "is done"
            log.info("GPU %d: the %s of %s that was cut off %s", gpu.index, intent.action, intent.placed, how)
            self.end(gpu.uuid, intent)
        return frozenset(left)

    def _others(self, gpu_uuid: str, intent: Intent) -> tuple[Intent, ...]:
        return tuple(known for known in self.intents(gpu_uuid) if known.placed != intent.placed)

    def _read(self, gpu_uuid: str) -> _File:
        content = read_json(self._path(gpu_uuid), _FILE)
        self._change_log.warn(f"journal {content}" if isinstance(content, Unreadable) else "", gpu_uuid)
        return content if isinstance(content, _File) else _NOTHING

    def _shorten(self, gpu_uuid: str, content: _File) -> None:
        try:
            if content == _NOTHING:
                # Not synced: no instance outlives a power cut, so what that brings back is settled as any other intent.
                self._path(gpu_uuid).unlink(missing_ok=True)
            else:
                self._write(gpu_uuid, content)
        except OSError as error:
            log.warning("the journal of %s was not written: %s", gpu_uuid, error)

    def _write(self, gpu_uuid: str, content: _File) -> None:
        write_json(self._path(gpu_uuid), _FILE, content)

    def _path(self, gpu_uuid: str) -> Path:
        return self._directory / f"{gpu_uuid}.json"
