"""Keeps what the watches have brought of this node: its plan, its Node and its pods.

Takes the events of the three watches, and through `LatestVersion` the answers to our own writes; wakes the loop where
one matters. Our own status and the kubelet's heartbeats come back as events too, and need no pass. Never reads or
writes anything itself.
"""

from collections.abc import Callable

from kube.latest import LatestVersion
from nodeagent.desired.plan import ObservedPlan
from nodeagent.observed.node import ObservedNode
from nodeagent.observed.pod_book import PodBook
from nodeagent.observed.pods import NodePod

Key = tuple[str, str]
"""Namespace and name."""


class NodeCache:
    """One per agent. The events come from the threads of the watches."""

    def __init__(self, pods: PodBook, *, wake: Callable[[], object]) -> None:
        self.plan, self.node = LatestVersion[ObservedPlan](), LatestVersion[ObservedNode]()
        self.pods = pods
        self.was_ours = False
        """The Node was enabled, or kept by the controller's label, at some time in the life of this process."""
        self._wake = wake

    def newest_spec_version(self) -> tuple[str, int]:
        """That of no plan while there is none."""
        plan = self.plan.get()
        return plan.spec_version if plan is not None else ("", 0)

    def on_plan(self, key: Key, old: ObservedPlan | None, new: ObservedPlan | None) -> None:
        known = self.plan.get()
        self.plan.on_event(key, old, new)
        if known is None or new is None or new.spec_version != known.spec_version or new.status != known.status:
            self._wake()

    def on_node(self, key: Key, old: ObservedNode | None, new: ObservedNode | None) -> None:
        self.node.on_event(key, old, new)
        self.was_ours = self.was_ours or (new is not None and new.ours)
        if old is None or new is None or new.without_version != old.without_version:
            self._wake()

    def on_pod(self, key: Key, old: NodePod | None, new: NodePod | None) -> None:
        self.pods.on_event(key, old, new)
        # A node may have hundreds of others, with a probe or a restart every second.
        if any(pod is not None and pod.concerns_gpus for pod in (old, new)):
            self._wake()
