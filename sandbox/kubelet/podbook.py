"""The pods of one node as its kubelet knows them, for all its threads.

In: pods from the API, what became of them here. Out: the active ones, which is what counts for devices, pod-resources
and admission. Active is: known, and not ended. A phase that somebody else patched to an ended one counts as ended,
though the container runs on; a pod that vanished from the API is not known any more, though its container runs on.
"""

import threading
from dataclasses import dataclass

from sandbox.kubelet.lifecycle import PodRun
from sandbox.kubelet.pods import Pod


@dataclass(slots=True)
class Entry:
    pod: Pod
    run: PodRun | None = None
    rejected: bool = False
    finished: bool = False
    """The object's final deletion was asked for."""

    @property
    def active(self) -> bool:
        if self.rejected or (self.run is not None and self.run.terminated):
            return False
        return not self.pod.ended or (self.run is not None and self.run.stopping)


class PodBook:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self.sources_ready = False
        """All pods of the API have been handed in once; nothing is freed before that."""

    def put(self, pod: Pod) -> Entry:
        with self._lock:
            entry = self._entries.setdefault(pod.uid, Entry(pod))
            entry.pod = pod
            if entry.run is not None:
                entry.run.pod = pod
            return entry

    def remove(self, uid: str) -> Entry | None:
        with self._lock:
            return self._entries.pop(uid, None)

    def get(self, uid: str) -> Entry | None:
        with self._lock:
            return self._entries.get(uid)

    def find(self, namespace: str, name: str) -> Entry | None:
        return next((e for e in self.entries() if (e.pod.namespace, e.pod.name) == (namespace, name)), None)

    def entries(self) -> tuple[Entry, ...]:
        """In the order in which the kubelet came to know them."""
        with self._lock:
            return tuple(self._entries.values())

    def active(self) -> tuple[Entry, ...]:
        return tuple(entry for entry in self.entries() if entry.active)

    def active_uids(self) -> frozenset[str]:
        return frozenset(entry.pod.uid for entry in self.active())
