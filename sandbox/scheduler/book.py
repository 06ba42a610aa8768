"""Holds what the scheduler knows: nodes, what their pods hold, and the pods that nodes are nominated for.

A pod whose bind is in flight is assumed: it holds its place from the moment of the decision. Only the scheduler's
thread touches this; it does no I/O.
"""

from collections.abc import Sequence
from dataclasses import replace

from controller.model.views import NodeView, PodView
from controller.simulator.usage import Usage


class Book:
    def __init__(self) -> None:
        self.usage: dict[str, Usage] = {}
        self.nominated: dict[str, list[PodView]] = {}
        self._nodes: dict[str, NodeView] = {}
        self.nodes: Sequence[NodeView] = ()
        """Sorted by name."""
        self._placed: dict[str, PodView] = {}  # uid -> the pod as it was counted, with its node
        self._nominations: dict[str, PodView] = {}

    def put_node(self, name: str, node: NodeView | None) -> None:
        if node is None:
            self._nodes.pop(name, None)
        else:
            self._nodes[name] = node
        self.nodes = [self._nodes[key] for key in sorted(self._nodes)]

    def place(self, pod: PodView, node: str) -> bool:
        """Count the pod on the node, bound or assumed. True: room became free (it shrank, or was elsewhere before)."""
        before = self._placed.get(pod.uid)
        if before is not None and before.node == node and before.requests == pod.requests:
            return False
        self.remove(pod.uid)
        counted = replace(pod, node=node)
        self._placed[pod.uid] = counted
        self.usage.setdefault(node, Usage()).add(counted)
        return before is not None

    def remove(self, uid: str) -> bool:
        """The pod is gone, finished, or was not bound after all. True: it held something."""
        counted = self._placed.pop(uid, None)
        if counted is None:
            return False
        self.usage[counted.node].remove(counted)
        return True

    def nominate(self, pod: PodView) -> bool:
        """Take over the pod's nomination, or that it has none (any more). True: a place is no longer held for it."""
        before = self._nominations.get(pod.uid)
        if before == pod or (before is None and not pod.nominated_node):
            return False
        if before is not None:
            del self._nominations[pod.uid]
        if pod.nominated_node:
            self._nominations[pod.uid] = pod
        self._regroup()
        return before is not None and before.nominated_node != pod.nominated_node

    def drop_nomination(self, uid: str) -> bool:
        if self._nominations.pop(uid, None) is None:
            return False
        self._regroup()
        return True

    def _regroup(self) -> None:
        self.nominated = {}
        for uid in sorted(self._nominations):
            pod = self._nominations[uid]
            self.nominated.setdefault(pod.nominated_node, []).append(pod)
