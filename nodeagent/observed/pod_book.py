"""Keeps the pods of this node as the watch brings them, and those that vanished from it.

Takes the watch's events, returns one moment as `ObservedPods`. A pod that vanished without having ended keeps its
devices until `end` is called for it: after a force deletion its containers run on while the kubelet already hands out
their devices. Thread-safe.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import replace

from nodeagent.observed.pods import NodePod, ObservedPods

REMEMBERED_ENDS = 4096
DEPARTED_SECONDS = 10.0
"""The kubelet lists an ended pod for up to two seconds after its object may be gone."""


class PodBook:
    """Fed by the watch, read by the pass."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pods: dict[tuple[str, str], NodePod] = {}
        self._vanished: dict[str, NodePod] = {}
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._departed: dict[tuple[str, str], float] = {}
        self._synced = False

    def on_event(self, key: tuple[str, str], _old: NodePod | None, new: NodePod | None) -> None:
        """One event of the watch; a pod of the same name with another uid is another pod."""
        with self._lock:
            known = self._pods.pop(key, None)
            if known is not None and (new is None or new.uid != known.uid):
                if known.ended:
                    self._departed[key] = self._clock()
                else:
                    self._vanished[known.uid] = known
            if new is not None:
                # A mirror pod that was deleted comes back for the same static pod.
                known = known or self._vanished.pop(new.uid, None)
                if known is not None and new.uid == known.uid:
                    # The first stop keeps the period that it was given, whatever a later deletion sets.
                    new = replace(new, grace_seconds=max(new.grace_seconds, known.grace_seconds))
                self._pods[key] = new
                # A patched phase can be undone by the kubelet.
                self._ended.pop(new.uid, None)
                if new.ended:
                    self._remember_end(new.uid)

    def set_synced(self) -> None:
        """The first whole list was handed in."""
        with self._lock:
            self._synced = True

    def observed(self) -> ObservedPods:
        """As of now."""
        now = self._clock()
        with self._lock:
            self._departed = {key: at for key, at in self._departed.items() if now < at + DEPARTED_SECONDS}
            return ObservedPods(
                pods=tuple(pod for _, pod in sorted(self._pods.items())),
                vanished=tuple(gone for _, gone in sorted(self._vanished.items())),
                ended=frozenset(self._ended),
                departed=frozenset(self._departed),
                synced=self._synced,
            )

    def end(self, uids: Iterable[str]) -> None:
        """Count these as ended, whatever the API shows of them last.

        Else a finished pod that the kubelet no longer lists would make the whole node unknown as long as it is kept.
        """
        with self._lock:
            late = set(uids)
            for uid in sorted(late):
                self._vanished.pop(uid, None)
                self._remember_end(uid)
            for pod in [pod for pod in self._pods.values() if pod.uid in late]:
                self._pods[pod.key] = replace(pod, ended=True)

    def _remember_end(self, uid: str) -> None:
        self._ended[uid] = None
        while len(self._ended) > REMEMBERED_ENDS:
            self._ended.popitem(last=False)
