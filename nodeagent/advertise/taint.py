"""Writes the agent's part of its own Node: a taint, the label of MPS daemons, and optionally the allocatable counts.

A new list that lowers a resource's count reaches the scheduler only at the kubelet's next status tick; pods bound until
then are refused permanently. The taint spares them that: it is on the Node from before the list is sent until the Node
shows the new count, and ten minutes at most: it keeps every pod off the node, and is no more than a courtesy. With
`writeAllocatable` the count is written at once instead. Must never be relied on for safety: withdrawal is what protects
pods.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from kubernetes.client import ApiClient

from crds.v1alpha1 import paths
from crds.v1alpha1.names import AGENT_MANAGER, CHANGING_TAINT, LABEL_MPS_DAEMONS, TAINT_CHANGING
from kube import apply
from kube.budget import RequestBudget
from kube.errors import ApiError, is_stale
from kube.latest import LatestVersion
from kube.retry import RetryGate
from kube.taints import taint_patch
from nodeagent.observed.node import ObservedNode, parse_node

log = logging.getLogger(__name__)
BOUND_SECONDS = 600.0
"""Longest time with the taint; the change that it was for goes on without."""
CAP_SECONDS = 10.0
"""Longest pause after a write that failed, unless the API server requests a longer one."""


def lowered(node: ObservedNode, counts: Mapping[str, int]) -> tuple[str, ...]:
    """Resources of which the Node still shows more than is advertised."""
    return tuple(name for name, count in sorted(node.allocatable.items()) if count > counts.get(name, 0))


def stale(node: ObservedNode, counts: Mapping[str, int]) -> dict[str, int]:
    """Counts that the Node does not show yet, either way."""
    names = sorted({*node.allocatable, *counts})
    return {name: counts.get(name, 0) for name in names if node.allocatable.get(name, 0) != counts.get(name, 0)}


class NodeWriting(Protocol):
    """See `NodeWriter`."""

    def set_taint(self, present: bool) -> str: ...

    def set_daemons(self, present: bool) -> str: ...

    def set_counts(self, allocatable: Mapping[str, int], capacity: Mapping[str, int]) -> str: ...


class NodeGuard:
    """Keeps the scheduler from binding pods to what is being withdrawn."""

    def __init__(
        self, writer: NodeWriting, *, write_allocatable: bool, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._writer, self._clock = writer, clock
        self._write_allocatable = write_allocatable
        self._tainted_at: float | None = None
        self._waiting: Mapping[str, int] = {}
        """Counts of the list that this pass wants to send."""
        self._given_up = False
        """The taint was there for too long, and its change has not ended."""
        self.why = ""
        """Why the taint is on the Node, as of the last pass."""

    def before_push(self, node: ObservedNode | None, counts: Mapping[str, int], ours: Iterable[str]) -> str:
        """Why a push must wait: these counts are lower and the Node has no taint yet, or nothing is known of it, and
        so not whether its containers get devices. Empty when it may go."""
        if node is None:
            return "this Node was not read from the API yet"
        if self._write_allocatable:
            return ""
        self._waiting = counts
        if lowered(_of_ours(node, ours), counts) and not (node.changing or self._given_up):
            return self._writer.set_taint(True)
        return ""

    def after_push(
        self,
        node: ObservedNode | None,
        counts: Mapping[str, int],
        capacity: Mapping[str, int],
        ours: Iterable[str],
        *,
        all_allocatable: bool,
        all_withdrawn: bool,
    ) -> str:
        """Write the counts once they are allocatable; lift the taint once the Node shows no more than is advertised.

        Less is no reason to keep it: one MPS daemon that does not start must not close the node to all pods, nor may a
        device plugin that is away. Returns why something could not be written.
        """
        self.why = ""
        waiting, self._waiting = self._waiting, {}
        if node is None:
            return ""
        shown = _of_ours(node, ours)
        if self._write_allocatable and all_allocatable and (wrong := stale(shown, counts)):
            return self._writer.set_counts(wrong, {name: capacity.get(name, 0) for name in wrong})
        why = "" if all_withdrawn else "whether the kubelet still lists what is withdrawn is not known, or it does"
        if more := lowered(shown, counts):
            why = f"the Node still counts more of {', '.join(more)} than is advertised"
        elif waiting and (more := lowered(shown, waiting)):
            why = f"a list with fewer of {', '.join(more)} waits for the device plugin to load the one before"
        return self._bounded(node, why)

    def _bounded(self, node: ObservedNode, why: str) -> str:
        """Keep the taint for a reason, and for no longer than its bound."""
        if not node.changing:
            self._tainted_at, self._given_up = None, self._given_up and bool(why)
            return ""
        self._tainted_at = self._clock() if self._tainted_at is None else self._tainted_at
        self._given_up = self._clock() - self._tainted_at >= BOUND_SECONDS
        if why and not self._given_up:
            self.why = (
                f"the node has the taint {TAINT_CHANGING}, which keeps every pod off it, for 10 min at most: {why}"
            )
            return ""
        return self._writer.set_taint(False)

    def hold_daemons(self, node: ObservedNode | None, *, needed: bool | None) -> str:
        """Set or remove the label by which the node has a supervisor of MPS daemons, and with it the daemons; None
        where it is not known whether a client lives. Returns why it could not be written."""
        if node is None or needed is None or node.mps_daemons == needed:
            return ""
        return self._writer.set_daemons(needed)

    def close(self, node: ObservedNode) -> str:
        """Set the taint, whatever the Node counts; returns why it could not be written."""
        return "" if node.changing else self._writer.set_taint(True)

    def lift(self, node: ObservedNode | None) -> str:
        """Remove the taint, whatever the Node counts."""
        return self._writer.set_taint(False) if node is not None and node.changing else ""


class NodeWriter:
    """Writes to one Node, nothing but these things. Failures are values: a later pass tries again."""

    def __init__(
        self,
        api: ApiClient,
        node_name: str,
        latest: LatestVersion[ObservedNode],
        budget: RequestBudget,
        *,
        clock: Callable[[], float],
    ) -> None:
        self._api, self._budget = api, budget
        self._path = paths.node(node_name)
        self._latest = latest
        self._retries: RetryGate[str] = RetryGate(clock=clock, cap_seconds=CAP_SECONDS)
        self._problems: dict[str, str] = {}
        """Why the last write failed, by what was written."""

    def set_taint(self, present: bool) -> str:
        """Why it could not be done; empty when the Node has (or lacks) the taint now."""
        return self._attempt(f"change the taint {TAINT_CHANGING}", partial(self._write_taint, present))

    def set_counts(self, allocatable: Mapping[str, int], capacity: Mapping[str, int]) -> str:
        """Why it could not be done. The kubelet's next tick computes the same numbers and keeps them."""
        return self._attempt("write the Node's allocatable", partial(self._write_counts, allocatable, capacity))

    def set_daemons(self, present: bool) -> str:
        """Why the label could not be written."""
        return self._attempt(f"change the label {LABEL_MPS_DAEMONS}", partial(self._write_label, present))

    def _attempt(self, what: str, write: Callable[[], Mapping[str, Any]]) -> str:
        """One sentence for as long as a pause lasts: each other one would be a status write."""
        if not self._retries.may_send(what):
            return self._problems[what]
        try:
            raw = write()
        except ApiError as error:
            if is_stale(error):
                return "the Node was changed in between: the next pass tries again"
            self._retries.failed(what, error)
            self._problems[what] = f"cannot {what}: {error}"
            return self._problems[what]
        self._retries.succeeded(what)
        self._latest.accept(parse_node(raw))
        return ""

    def _write_taint(self, present: bool) -> Mapping[str, Any]:
        with self._budget.request() as timeouts:
            raw = apply.get(self._api, self._path, timeouts=timeouts)
        if operations := taint_patch(raw, CHANGING_TAINT, present=present):
            with self._budget.request() as timeouts:
                raw = apply.json_patch(self._api, self._path, operations, manager=AGENT_MANAGER, timeouts=timeouts)
            log.info("node taint %s %s", TAINT_CHANGING, "set" if present else "removed")
        return raw

    def _write_label(self, present: bool) -> Mapping[str, Any]:
        body = {"metadata": {"labels": {LABEL_MPS_DAEMONS: "true" if present else None}}}
        with self._budget.request() as timeouts:
            raw = apply.merge_patch(self._api, self._path, body, manager=AGENT_MANAGER, timeouts=timeouts)
        log.info("node label %s %s", LABEL_MPS_DAEMONS, "set" if present else "removed")
        return raw

    def _write_counts(self, allocatable: Mapping[str, int], capacity: Mapping[str, int]) -> Mapping[str, Any]:
        texts = {name: str(count) for name, count in sorted(allocatable.items())}
        listed = {name: str(count) for name, count in sorted(capacity.items())}
        body = {"status": {"capacity": listed, "allocatable": texts}}
        with self._budget.request() as timeouts:
            path = f"{self._path}/status"
            raw = apply.merge_patch(self._api, path, body, manager=AGENT_MANAGER, timeouts=timeouts)
        log.info("node allocatable written: %s", texts)
        return raw


def _of_ours(node: ObservedNode, ours: Iterable[str]) -> ObservedNode:
    """Another plugin's resources on this node are left alone."""
    names = frozenset(ours)
    return replace(node, allocatable={name: count for name, count in node.allocatable.items() if name in names})
