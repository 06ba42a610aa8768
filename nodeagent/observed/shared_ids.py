"""Finds ids that two pods hold, and for an id that was handed out again the only pod that may have it.

Takes the records of each pass and the Allocates, remembers for how long two pods have held one id, and of which
Allocates the holder was certain. Must name no pod where another may have the id: its container would start.
"""

from collections.abc import Collection, Mapping

from nodeagent.durations import Durations
from nodeagent.handover.config import Allocation
from nodeagent.hardware.gpu_ids import lasts
from nodeagent.observed.pods import NodePod, ObservedPods
from nodeagent.observed.usage import Twice

TWICE_SECONDS = 30.0
"""An ended pod may hold its device for a moment longer at the API than at the kubelet."""
FORGOTTEN_SECONDS = 2.0
"""A new pod is in watch and List, with its devices, within this time."""


class SharedIds:
    """Of one agent. Call `end_pass` last."""

    def __init__(self, durations: Durations) -> None:
        self._durations = durations
        self._alone: dict[str, tuple[str, float]] = {}

    @property
    def alone(self) -> dict[str, tuple[str, float]]:
        """UID of the only pod that may have it, with the time of the Allocate, by id."""
        return dict(sorted(self._alone.items()))

    def end_pass(
        self,
        allocations: Collection[Allocation],
        pods: ObservedPods,
        known: Mapping[str, frozenset[str]],
        *,
        sure: bool,
        unsure: Collection[str],
        ended: Collection[str],
    ) -> None:
        """Name the pod that any record has with an id, if that is the only one and lives.

        `sure`: the records are whole, and no process of an unknown pod is left. `unsure`: ids that are in doubt.
        """
        again = {entry.id: entry for entry in allocations if entry.again}
        self._alone = {i: (uid, at) for i, (uid, at) in self._alone.items() if i in again and again[i].at == at}
        handed = frozenset(entry.resource for entry in allocations)
        living = {pod.uid: pod for pod in pods.pods if not pod.ended}
        lacking = [pod for pod in pods.unended if lacks(pod, known, handed)]
        unknown = [(pod, self._durations.seconds("unknown", pod.uid)) for pod in lacking]
        for i, entry in again.items():
            # A pod that came after the Allocate is no earlier holder, or each new one would keep others from starting.
            since_seconds = self._durations.seconds("again", i, repr(entry.at)) - FORGOTTEN_SECONDS
            other = any(seconds >= since_seconds and entry.resource in pod.resources for pod, seconds in unknown)
            uids = {uid for uid, found in known.items() if i in found}.difference(ended)
            new = sure and i not in self._alone and i not in unsure
            if new and len(uids) == 1 and uids <= living.keys() and not other:
                self._alone[i] = (uids.pop(), entry.at)

    def twice(self, pods: ObservedPods, known: Mapping[str, frozenset[str]]) -> Twice:
        """By memory and checkpoint: a List names no UIDs, and shows a forgotten holder without its devices."""
        holders: dict[str, list[NodePod]] = {}
        for pod in sorted((pod for pod in pods.pods if not pod.ended), key=lambda pod: pod.uid):
            for i in known.get(pod.uid, ()):
                if not lasts(i):
                    holders.setdefault(i, []).append(pod)
        several = {i: tuple(found) for i, found in sorted(holders.items()) if len(found) > 1}
        return {
            i: (found, self._durations.seconds("twice", i, *(pod.uid for pod in found)) >= TWICE_SECONDS)
            for i, found in several.items()
        }


def lacks(pod: NodePod, known: Mapping[str, frozenset[str]], handed: frozenset[str]) -> bool:
    """Whether it may hold a device that is not known; none of a resource of which none was handed out, where any was.

    A kubelet admits a pod that requests what no plugin of its node has, and gives it nothing.
    """
    amounts = (*(amount for _, found in pod.containers for amount in found), *pod.hidden)
    return len(known.get(pod.uid, ())) < sum(count for name, count in amounts if name in handed or not handed)
