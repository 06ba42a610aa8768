"""Decides when the agent writes its part of its own Node: a taint, the label of MPS daemons, amounts of our resources.

A new list that lowers a resource's count reaches the scheduler only at the kubelet's next status tick; pods bound until
then are refused permanently. The taint spares them that: it is on the Node from before the list is sent, and long
enough for pods that were bound meanwhile to be seen, until the Node shows the new count, and ten minutes at most, over
restarts of the agent: it keeps every pod off the node, and is no more than a courtesy. Amounts are written, up or down,
only once the kubelet lists exactly these ids: admission and the kubelet's own tick read the same list. A count that was
lowered before that would be put back by the tick. Must never be relied on for safety: withdrawal is what protects pods.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from pydantic import TypeAdapter

from crds.v1alpha1.names import TAINT_CHANGING
from nodeagent.advertise.counts_right import OUTDATED, Answer, CountsRight
from nodeagent.handover.files import wire
from nodeagent.handover.kept import Kept
from nodeagent.observed.node import ObservedNode

BOUND_SECONDS = 600.0
"""Longest time with the taint; the change that it was for goes on without."""
SETTLE_SECONDS, UNWATCHED_SECONDS = 0.2, 10.0
"""How long a list waits from the answer to the taint on, and as long again as that took; at most, where the watch does
not bring the taint."""
LATE_SECONDS = 1.0
"""Between two passes while that is late; its event wakes the agent."""


@wire
class _Taint:
    """As this agent, or one before it, set it; on disk before that, since it may be the last thing that agent does."""

    since: float | None = None
    """By the clock that starts with the machine; None while it is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
    """What our device plugin is to list, and what it lists, as the Node counts it."""

    counts: Mapping[str, int]
    """Healthy devices by resource."""
    capacities: Mapping[str, int]
    """With the Unhealthy ones."""
    before: Mapping[str, int]
    """`counts` of the list on disk: the Node may come to show as many at any moment."""
    ours: Collection[str]
    """Our resources; what else the Node shows is left alone."""


def lowered(node: ObservedNode, counts: Mapping[str, int]) -> tuple[str, ...]:
    """Resources of which the Node still shows more than is advertised."""
    return tuple(name for name, count in sorted(node.allocatable.items()) if count > counts.get(name, 0))


def stale(node: ObservedNode, counts: Mapping[str, int]) -> dict[str, int]:
    """Counts that the Node does not show yet, either way."""
    names = sorted({*node.allocatable, *counts})
    return {name: counts.get(name, 0) for name in names if node.allocatable.get(name, 0) != counts.get(name, 0)}


class NodeWriting(Protocol):
    """See `nodeagent.advertise.node_writer`."""

    def set_taint(self, present: bool) -> str: ...

    def set_daemons(self, present: bool) -> str: ...

    def set_counts(self, version: str, allocatable: Mapping[str, int], capacity: Mapping[str, int]) -> str: ...

    def ask_policy(self) -> Answer | None: ...


class NodeGuard:
    """Keeps the scheduler from binding pods to what is being withdrawn."""

    def __init__(self, writer: NodeWriting, right: CountsRight, record: Path, *, clock: Callable[[], float]) -> None:
        self._writer, self._right, self._clock = writer, right, clock
        self._taint = Kept(record, TypeAdapter(_Taint), _Taint())
        self._given_up = False
        """It was there for too long, for the change that has not ended."""
        self._seen_at, self._watched = clock(), False
        """When this pass began, hence read its pods, and whether the watch of the Node had brought the latest then."""
        self._asked_at, self._settle_seconds = clock(), 0.0
        """When the last try to write the taint ended, and how long from then on a list waits."""
        self._failed_seconds = 0.0
        """How long the longest try took, of those that failed since the last one that did not."""
        self.may_be_off = False
        """Its removal failed, and may have been carried out: the Node may lack the taint that was read of it."""
        self._waiting: Lists | None = None
        """The list that this pass wants to send."""
        self.why = ""
        """Why the taint is on the Node, as of the last pass."""
        self.due_seconds: float | None = None
        """After which `before_push` has to be called again; None where nothing waits for a taint that is there."""

    @property
    def counts_right(self) -> Answer:
        """What is known of it."""
        return self._right.answer

    def begin_pass(self, *, watched: bool) -> None:
        """Call it before the pods are read: a pass may take longer than pods that were bound before are waited for."""
        self._seen_at, self._watched = self._clock(), watched
        self._waiting = self.due_seconds = None

    def awaits_taint(self, node: ObservedNode | None, lists: Lists) -> bool:
        """Whether this list may not be sent before the Node has, or has had for a moment, the taint."""
        if node is None or not lowered(_most(node, lists), lists.counts) or self._given_up:
            return node is None
        waited_seconds = self._seen_at - self._asked_at
        settled = waited_seconds >= (self._settle_seconds if self._watched else UNWATCHED_SECONDS)
        return not (node.changing and settled) or self.may_be_off

    def before_push(self, node: ObservedNode | None, lists: Lists) -> str:
        """Why this list must wait: it lowers a count, and the Node has no taint yet, or only just; or nothing is known
        of the Node, and so not whether its containers get devices. Empty when it may go."""
        if node is None:
            return "this Node was not read from the API yet"
        self._waiting = lists
        if not self.awaits_taint(node, lists):
            return ""
        if (not node.changing or self.may_be_off) and (failed := self._ask(node)):
            return failed
        left_seconds = self._asked_at + self._settle_seconds - self._clock()
        self.due_seconds = max(left_seconds, 0.0 if self._watched else LATE_SECONDS)
        return "the Node got its taint just now: pods that were bound before are waited for"

    def _ask(self, node: ObservedNode) -> str:
        """Write the taint; returns why it could not be written."""
        asked_at = self._clock()
        if not node.changing and (forgotten := self._taint.keep(_Taint(since=asked_at))):
            return forgotten
        failed = self._writer.set_taint(True)
        self._asked_at = self._clock()
        # The scheduler's own requests take as long, and pods that it bound before must be seen first. Of several tries
        # the longest counts: one that failed may have been carried out.
        longest_seconds = max(self._asked_at - asked_at, self._failed_seconds)
        self._settle_seconds = min(longest_seconds + SETTLE_SECONDS, UNWATCHED_SECONDS)
        self._failed_seconds = longest_seconds if failed else 0.0
        self.may_be_off = self.may_be_off and bool(failed)
        return failed

    def after_push(
        self, node: ObservedNode | None, lists: Lists, unlike: Collection[str] | None, *, all_withdrawn: bool
    ) -> str:
        """Write the counts of which the kubelet lists exactly these ids, all but those in `unlike` (None: that is not
        known); lift the taint once the Node shows no more than is advertised.

        Less is no reason to keep it: one MPS daemon that does not start must not close the node to all pods, nor may a
        device plugin that is away. Returns why something could not be written.
        """
        self.why, failed = "", ""
        waiting, self._waiting = self._waiting, None
        if node is None:
            return ""
        shown = _of_ours(node, lists.ours)
        if unlike is not None and self._right.granted():
            wrong = {name: count for name, count in stale(shown, lists.counts).items() if name not in unlike}
            if wrong:
                capacity = {name: lists.capacities.get(name, 0) for name in wrong}
                failed = self._writer.set_counts(node.version, wrong, capacity)
            if failed and failed != OUTDATED:
                self._right.doubt()
            if not failed:
                shown = replace(shown, allocatable={**shown.allocatable, **wrong})
        why = "" if all_withdrawn else "whether the kubelet still lists what is withdrawn is not known, or it does"
        if more := lowered(shown, lists.counts):
            why = f"the Node still counts more of {', '.join(more)} than is advertised"
        elif waiting is not None and (more := lowered(_most(node, waiting), waiting.counts)):
            why = f"a list with fewer of {', '.join(more)} waits for the device plugin to load the one before"
        bounded = self._bounded(node, failed or why)
        return failed or bounded

    def _bounded(self, node: ObservedNode, why: str) -> str:
        """Keep the taint for a reason, and for no longer than its bound."""
        known, now = self._taint.value.since, self._clock()
        if not node.changing:
            self._given_up = self._given_up and bool(why)
            if not why:
                self._taint.keep(_Taint())
            return ""
        since = now if known is None else min(now, known)  # the machine may have been restarted
        forgotten = self._taint.keep(_Taint(since=since))
        self._given_up = now - since >= BOUND_SECONDS
        # Agents of which none knows, or can note, since when it is there would keep it for ever.
        if why and not (self._given_up or (forgotten and known is None)):
            self.why = f"the node has the taint {TAINT_CHANGING}, which keeps off every pod, for 10 min at most: {why}"
            return ""
        return self.lift(node, for_now=True)

    def hold_daemons(self, node: ObservedNode | None, *, needed: bool | None) -> str:
        """Set or remove the label by which the node has a supervisor of MPS daemons, and with it the daemons; None
        where it is not known whether a client lives. Returns why it could not be written."""
        if node is None or needed is None or node.mps_daemons == needed:
            return ""
        return self._writer.set_daemons(needed)

    @property
    def closed_seconds(self) -> float:
        """Since `close` was first called, over restarts of the agent; 0 where it was not since the taint was lifted."""
        since, now = self._taint.value.since, self._clock()
        return 0.0 if since is None else max(now - since, 0.0)

    def close(self, node: ObservedNode) -> str:
        """Set the taint, whatever the Node counts; returns why it could not be written."""
        if not self.closed_seconds:
            self._taint.keep(_Taint(since=self._clock()))
        return "" if node.changing else self._writer.set_taint(True)

    def lift(self, node: ObservedNode | None, *, for_now: bool = False) -> str:
        """Remove the taint, whatever the Node counts. `for_now`: what it was for goes on."""
        if not for_now:
            self._taint.keep(_Taint())
        failed = self._writer.set_taint(False) if node is not None and node.changing else ""
        self.may_be_off = bool(failed)
        return failed


def _most(node: ObservedNode, lists: Lists) -> ObservedNode:
    """With as many as the Node can show while nothing new is listed."""
    shown = _of_ours(node, lists.ours).allocatable
    mine = {name: count for name, count in lists.before.items() if name in lists.ours}
    return replace(node, allocatable={n: max(shown.get(n, 0), mine.get(n, 0)) for n in {*shown, *mine}})


def _of_ours(node: ObservedNode, ours: Iterable[str]) -> ObservedNode:
    """Another plugin's resources on this node are left alone."""
    names = frozenset(ours)
    return replace(node, allocatable={name: count for name, count in node.allocatable.items() if name in names})
