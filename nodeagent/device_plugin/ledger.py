"""Records which device ids were handed out, and when: a witness that does not depend on the kubelet's memory.

It is on disk before the answer of an Allocate leaves, so that no pod holds a device that the ledger does not name.
Keeps the latest Allocate of each id; the agent judges its age. An id that the config no longer knows is forgotten after
a day. A ledger that cannot be read is kept aside and a new one begun: `problem` and the file report it, as they do when
the one that the agent has read, or that was begun, is gone; the new one has every device of the config, which may be
held. Must never forget an id that the config names.
"""

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection
from dataclasses import replace

from nodeagent.handover.config import (
    NO_LEDGER,
    Allocation,
    LedgerMark,
    Loaded,
    PluginConfig,
    PluginFiles,
    read_config,
    read_ledger,
    read_ledger_mark,
    read_loaded,
    write_ledger,
)
from nodeagent.handover.files import Unreadable
from nodeagent.handover.seen_free import read_seen_free

FORGET_SECONDS = 86400.0
log = logging.getLogger(__name__)


class Ledger:
    def __init__(
        self,
        files: PluginFiles,
        clock: Callable[[], float] = time.time,
        *,
        boot_id: str = "",
        named: Collection[str] = (),
    ) -> None:
        """`named` are the ids that the kubelet's checkpoint names."""
        self.problem, self.unwritable = "", ""
        self._files, self._clock, self._boot_id = files, clock, boot_id
        self._lock = threading.Lock()
        found, mark, loaded = read_ledger(files), read_ledger_mark(files), read_loaded(files)
        begun = loaded.book if isinstance(loaded, Loaded) else ""
        self.named = frozenset(named).union(loaded.named if isinstance(loaded, Loaded) else ())
        """What it has no word of and is among these was handed out by a record that is lost, or by another plugin."""
        wrong = not mark.follows(read_seen_free(files).ledger) or begun not in ("", mark.book)
        gone = found is None and (isinstance(loaded, Unreadable) or files.lost_ledger.exists())
        if isinstance(found, Unreadable):
            files.ledger.replace(files.lost_ledger)
            self.problem = f"{found}; kept aside as {files.lost_ledger.name}, earlier Allocates are not known"
        elif wrong or gone:
            with contextlib.suppress(OSError):
                files.lost_ledger.touch()
            self.problem = f"the ledger was lost (deleted, or an older one put back): see {files.lost_ledger.name}"
        self._latest = {entry.id: entry for entry in found} if isinstance(found, tuple) else {}
        if self.problem:
            mark = NO_LEDGER
            # Any may be held, also what the agent saw free after the Allocate that an older record has. One of an
            # earlier boot does not say that its device was not handed out in this one.
            devices = config.devices if isinstance(config := read_config(files), PluginConfig) else ()
            old, now = self.of_this_boot(), clock()
            again = {e.id: replace(e, at=now, again=True, up_seconds=e.up_seconds * bool(e.boot_id)) for e in old}
            self._latest = {device.id: self._unknown(device.id, device.resource) for device in devices} | again
        # A record that was begun again differs from an earlier one by its name, one that was put back by the count.
        self._mark, self._begun = LedgerMark(mark.book or uuid.uuid4().hex, mark.writes), begun
        if not mark.book:  # from now on one that is not there was lost
            with contextlib.suppress(OSError):
                self._write(self._latest)

    @property
    def book(self) -> str:
        """Its name once it is on disk, until then that of the one before: what was never written cannot be lost."""
        return self._mark.book if self._mark.writes else self._begun

    def record(self, resource: str, ids: Collection[str], unmarked: Collection[str] = ()) -> None:
        """Raises OSError where it cannot be written; then nothing may be handed out.

        `unmarked` are the ids that may still have an earlier holder, as may those of a record that was kept aside.
        """
        now, up_seconds = self._clock(), time.clock_gettime(time.CLOCK_BOOTTIME)
        # The file is for later processes: on a full disk it could not be made, and people wipe it with the rest.
        lost = bool(self.problem) or self._files.lost_ledger.exists()
        with self._lock:
            new = Allocation(id="", resource=resource, at=now, boot_id=self._boot_id, up_seconds=up_seconds)
            doubted = {i for i in ids if i in unmarked or ((lost or i in self.named) and i not in self._latest)}
            # What has it open may be of each pod that got it since it was seen free, not of the last one alone; of one
            # that a lost record may have named, as of one that none names, all that is open counts.
            first = {i: self._latest[i].up_seconds if i in self._latest else 0.0 for i in doubted}
            made = {i: replace(new, id=i, again=i in doubted, up_seconds=first.get(i, up_seconds)) for i in ids}
            self._write({**self._latest, **made})

    def recall(self, resource: str, ids: Collection[str]) -> None:
        """Enter what a container starts with and no entry names. Raises OSError, as `record`."""
        with self._lock:
            if unknown := set(ids) - self._latest.keys():
                self._write({**self._latest, **{i: self._unknown(i, resource) for i in unknown}})

    def _unknown(self, device_id: str, resource: str) -> Allocation:
        """When it was handed out is not known, nor whether another pod had it before."""
        return Allocation(id=device_id, resource=resource, at=self._clock(), boot_id=self._boot_id, again=True)

    def probe(self) -> None:
        """Write again what could not be written, or is not there any more."""
        with self._lock, contextlib.suppress(OSError):
            if self.unwritable or not self._files.ledger.exists():
                self._write(self._latest)

    def forget(self, known: Collection[str]) -> None:
        """Drop old entries of ids that are neither advertised nor withdrawn any more."""
        oldest = self._clock() - FORGET_SECONDS
        with self._lock:
            kept = {id_: entry for id_, entry in self._latest.items() if id_ in known or entry.at >= oldest}
            if len(kept) < len(self._latest):
                try:
                    self._write(kept)
                except OSError as error:
                    # A longer ledger does no harm; a plugin that ends takes every device from the kubelet.
                    log.warning("old Allocates stay in the ledger, it cannot be written: %s", error)

    def _write(self, latest: dict[str, Allocation]) -> None:
        mark = self._mark._replace(writes=self._mark.writes + 1)
        try:
            write_ledger(self._files, latest.values(), mark)
        except OSError as error:
            self.unwritable = f"the ledger of allocations cannot be written, so no pod gets a device: {error}"
            raise
        self._latest, self._mark, self.unwritable = latest, mark, ""

    def of_this_boot(self) -> tuple[Allocation, ...]:
        """No pod outlives the boot in which it got its device."""
        return tuple(e for e in self.entries() if "" in (e.boot_id, self._boot_id) or e.boot_id == self._boot_id)

    def entries(self) -> tuple[Allocation, ...]:
        with self._lock:
            return tuple(entry for _, entry in sorted(self._latest.items()))
