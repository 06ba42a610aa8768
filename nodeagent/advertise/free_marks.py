"""Marks for the device plugin what was seen of the devices that it handed out: see `handover.seen_free`.

Takes an observation, in which the ledger was read before every witness; an Allocate that came later has another time,
and is not marked. Must run before anything is destroyed on the same observation, and never mark what is not free by all
witnesses: the plugin lists a marked device to a kubelet that may have forgotten its holder. What it says of a pod that
alone has a device stays until the device is handed out again.
"""

import logging
from collections.abc import Callable, Collection

from kube.change_log import ChangeLog
from nodeagent.handover.config import PluginFiles, read_ledger_mark
from nodeagent.handover.seen_free import SeenFree, read_seen_free, write_seen_free
from nodeagent.observation import Observation

log = logging.getLogger(__name__)


class FreeMarks:
    def __init__(self, files: PluginFiles) -> None:
        self._files, self._change_log = files, ChangeLog(log)

    def note(self, observation: Observation, afresh: Callable[[Observation], Observation]) -> None:
        """Call it once a pass. What cannot be written now is tried again by the next one."""
        latest = {entry.id: entry.at for entry in observation.witnessed.handed_out}
        before = read_seen_free(self._files)  # not from memory: without its file the plugin has no marks
        marks = {i: at for i, at in latest.items() if before.allocations.get(i) == at}
        free = _free(observation, latest.keys() - marks.keys())
        if free and observation.kept:
            # A process may have come since the earlier reading.
            free = _free(afresh(observation), free)
        marks.update({i: latest[i] for i in free})
        said = {i: named for i, named in before.alone.items() if named[1] == latest.get(i)}
        mark = read_ledger_mark(self._files)
        ledger = before.ledger if before.ledger.follows(mark) else mark  # never an older one, or none
        seen = SeenFree(allocations=marks, alone=said | dict(observation.usage.alone), ledger=ledger)
        if seen != before:
            try:
                write_seen_free(self._files, seen)
            except OSError as error:
                self._change_log.warn(f"what was seen free cannot be marked: {error}")
                return
            self._change_log.warn("")


def _free(observation: Observation, ids: Collection[str]) -> set[str]:
    if not ids:
        return set()
    return {
        partition.id
        for gpu in observation.gpus
        for partition in observation.judge(gpu).partitions
        if partition.id in ids and observation.verdict(partition, gpu).free
    }
