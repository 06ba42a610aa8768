"""Keeps the pods of this node as the watch brings them, and those that vanished from it.

Takes the watch's events, returns one moment as `ObservedPods`. A pod that vanished without having ended keeps its
devices until `end` is called for it: after a force deletion its containers run on while the kubelet already hands out
their devices. Thread-safe.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

from nodeagent.observed.pods import NodePod, ObservedPods

DEPARTED_SECONDS = 10.0
"""The kubelet lists an ended pod for up to two seconds after its object may be gone; a pass comes within ten."""


class PodBook:
    """Fed by the watch, read by the pass."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pods: dict[tuple[str, str], NodePod] = {}
        self._vanished: dict[str, NodePod] = {}
        self._departed: dict[str, tuple[NodePod, float]] = {}
        """By UID: those that have left the API and ended, and when the later of it was."""
        self._synced = False

    def on_event(self, key: tuple[str, str], _old: NodePod | None, new: NodePod | None) -> None:
        """One event of the watch; a pod of the same name with another uid is another pod."""
        with self._lock:
            known = self._pods.pop(key, None)
            if known is not None and (new is None or new.uid != known.uid):
                if known.ended:
                    self._departed[known.uid] = known, self._clock()
                else:
                    self._vanished[known.uid] = known
            if new is not None:
                # A mirror pod that was deleted comes back for the same static pod.
                known = known or self._vanished.pop(new.uid, None)
                if known is not None and new.uid == known.uid:
                    # The first stop keeps the period that it was given, whatever a later deletion sets.
                    new = replace(new, grace_seconds=max(new.grace_seconds, known.grace_seconds))
                self._pods[key] = new
                self._departed.pop(new.uid, None)

    def set_synced(self) -> None:
        """The first whole list was handed in."""
        with self._lock:
            self._synced = True

    def observed(self) -> ObservedPods:
        """As of now."""
        now = self._clock()
        with self._lock:
            self._departed = {
                uid: (pod, at) for uid, (pod, at) in self._departed.items() if now < at + DEPARTED_SECONDS
            }
            return ObservedPods(
                pods=tuple(pod for _, pod in sorted(self._pods.items())),
                vanished=tuple(gone for _, gone in sorted(self._vanished.items())),
                ended=frozenset(pod.uid for pod in self._pods.values() if pod.ended).union(self._departed),
                departed=frozenset(pod.key for pod, _ in self._departed.values() if pod.ended),
                synced=self._synced,
            )

    def end(self, uids: Iterable[str]) -> None:
        """Count these as ended, whatever the API shows of them last.

        Else a finished pod that the kubelet no longer lists would make the whole node unknown as long as it is kept.
        """
        with self._lock:
            late = set(uids)
            for uid in sorted(late & self._vanished.keys()):
                self._departed[uid] = self._vanished.pop(uid), self._clock()
            for pod in [pod for pod in self._pods.values() if pod.uid in late]:
                self._pods[pod.key] = replace(pod, ended=True)
