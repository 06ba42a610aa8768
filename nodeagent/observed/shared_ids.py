"""Finds ids that two pods hold, and for an id that was handed out again the only pod that may have it.

Takes the records of each pass and the Allocates, remembers for how long two pods have held one id, and of which
Allocates the holder was certain. Must name no pod where another may have the id: its container would start.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from nodeagent.ages import Ages
from nodeagent.handover.config import Allocation
from nodeagent.hardware.gpu_ids import lasts
from nodeagent.observed.pods import NodePod, ObservedPods
from nodeagent.observed.usage import Twice

TWICE_SECONDS = 30.0
"""An ended pod may hold its device for a moment longer at the API than at the kubelet."""


class SharedIds:
    """Of one agent. Call `end_pass` last."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._ages = Ages(clock)
        self._alone: dict[str, tuple[float, str]] = {}
        """UID of the only pod that may have it, by id with the time of the Allocate."""

    @property
    def alone(self) -> dict[str, str]:
        """UID by id."""
        return {i: uid for i, (_, uid) in sorted(self._alone.items())}

    def end_pass(
        self,
        allocations: Iterable[Allocation],
        pods: ObservedPods,
        known: Mapping[str, frozenset[str]],
        *,
        sure: bool,
        unsure: Collection[str],
        ended: Collection[str],
    ) -> None:
        """`sure`: the records are whole, and no process of an unknown pod is left. `unsure`: ids that are in doubt."""
        self._ages.end_pass()
        again = {entry.id: entry.at for entry in allocations if entry.again}
        self._alone = {i: (at, uid) for i, (at, uid) in self._alone.items() if again.get(i) == at}
        if sure:
            new = again.keys() - self._alone.keys() - set(unsure)
            self._alone.update({i: (again[i], uid) for i, uid in self._sole(new, pods, known, ended)})

    def twice(self, pods: ObservedPods, records: Iterable[tuple[str, str]]) -> Twice:
        """By memory and checkpoint: a List names no UIDs, and shows a forgotten holder without its devices.

        `records` are UIDs and ids.
        """
        lines = {*records, *((pod.uid, i) for pod in pods.pods for i in pod.reported)}
        holders: dict[str, list[NodePod]] = {}
        for pod in sorted((pod for pod in pods.pods if not pod.ended), key=lambda pod: pod.uid):
            for i in sorted(i for uid, i in lines if uid == pod.uid and not lasts(i)):
                holders.setdefault(i, []).append(pod)
        several = {i: tuple(found) for i, found in sorted(holders.items()) if len(found) > 1}
        return {
            i: (found, self._ages.seconds("twice", i, *(pod.uid for pod in found)) >= TWICE_SECONDS)
            for i, found in several.items()
        }

    def _sole(
        self, ids: Iterable[str], pods: ObservedPods, known: Mapping[str, frozenset[str]], ended: Iterable[str]
    ) -> Iterable[tuple[str, str]]:
        """Each with the UID of the only pod that any record has with it, if that one lives."""
        unknown = any(len(known.get(gone.uid, ())) < gone.requested or gone.hidden for gone in pods.vanished)
        living = {pod.uid for pod in pods.pods if not pod.ended}
        for i in () if unknown else sorted(ids):
            uids = {uid for uid, found in known.items() if i in found}.difference(ended)
            if len(uids) == 1 and uids <= living:
                yield i, uids.pop()
