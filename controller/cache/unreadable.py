"""Objects that cannot be understood: planning leaves them out, but counts what a bound pod may hold.

Takes readings and returns what planning may see of them. An unreadable pod that is bound to a node counts as in use,
with what was last known of it, else with its requests alone; where not even those can be read, nothing is planned on
its node. Owned by `controller.cache.state`, under whose lock every method runs.
"""

import logging
from dataclasses import replace
from typing import TypeVar

from controller.api.reading import Unreadable
from controller.model.views import PodKey, PodView
from kube.change_log import ChangeLog

log = logging.getLogger(__name__)
View = TypeVar("View")


class UnreadableObjects:
    """Kind and name of each, with the reason."""

    def __init__(self) -> None:
        self.reasons: dict[tuple[str, str], str] = {}
        self._problems = ChangeLog(log)
        self._unknown: dict[PodKey, str] = {}

    def readable(self, kind: str, name: str, observed: View | Unreadable | None) -> View | None:
        """What can be read, or None; each reason is logged once."""
        if isinstance(observed, Unreadable):
            self._problems.warn(f"{kind} {name} is left out: {observed.reason}", about=(kind, name))
            self.reasons[kind, name] = observed.reason
            return None
        self._problems.warn("", about=(kind, name))
        self.reasons.pop((kind, name), None)
        return observed

    def pod(self, key: PodKey, observed: PodView | Unreadable | None, last: PodView | None) -> PodView | None:
        """The pod as planning must count it; `last` is its last good view."""
        found = self.readable("pod", "/".join(key), observed)
        before = self._unknown.pop(key, "")
        if not isinstance(observed, Unreadable) or observed.finished:
            return found
        if not observed.node:
            return last if last is not None and last.node else None
        if last is not None and last.uid == observed.uid:
            held = observed.held or last
            return replace(last, node=observed.node, requests=held.requests, gpu=held.gpu)
        if observed.held is None:
            if observed.node != before:
                log.warning(
                    "nothing is planned on node %s: what pod %s holds there cannot be read",
                    observed.node,
                    "/".join(key),
                )
            self._unknown[key] = observed.node
        return observed.held

    def unknown_holders(self, node: str) -> frozenset[str]:
        """Pods on this node whose holdings are unknown, by namespace/name."""
        return frozenset("/".join(key) for key, where in self._unknown.items() if where == node)

    def unknown_nodes(self) -> frozenset[str]:
        """Nodes with a pod whose holdings are unknown."""
        return frozenset(self._unknown.values())
