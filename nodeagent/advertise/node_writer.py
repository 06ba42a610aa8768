"""Writes the agent's part of its own Node: a taint, the label of MPS daemons, and the amounts of our resources.

Each write of amounts names the version of the Node that it was decided on, so that one whose answer was lost cannot
raise a count behind a later taint. Must never write anything else, nor to another Node.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from kubernetes.client import ApiClient

from crds.v1alpha1 import paths
from crds.v1alpha1.names import AGENT_MANAGER, CHANGING_TAINT, LABEL_MPS_DAEMONS, TAINT_CHANGING
from kube import apply
from kube.budget import RequestBudget
from kube.errors import ApiError, Conflict, Invalid, is_stale
from kube.latest import LatestVersion
from kube.patches import taint_patch
from kube.retry import RetryGate
from nodeagent.advertise.counts_right import OUTDATED, PROBE, Answer, judge
from nodeagent.observed.node import ObservedNode, parse_node

log = logging.getLogger(__name__)
CAP_SECONDS = 10.0
"""Longest pause after a write that failed, unless the API server requests a longer one."""


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

    def set_counts(self, version: str, allocatable: Mapping[str, int], capacity: Mapping[str, int]) -> str:
        """Why it could not be done. The kubelet's next tick computes the same numbers and keeps them."""
        what = "write the Node's allocatable"
        return self._attempt(what, partial(self._write_counts, version, allocatable, capacity))

    def ask_policy(self) -> Answer | None:
        """Whether the policy refuses what it must; None where that was not answered."""
        try:
            self._merge("/status", {"status": {"allocatable": {PROBE: "1"}}}, dry_run=True)
        except ApiError as error:
            return judge(error)
        return judge(None)

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
                return OUTDATED
            self._retries.failed(what, error)
            self._problems[what] = f"cannot {what}: {error}"
            return self._problems[what]
        self._retries.succeeded(what)
        self._latest.accept(parse_node(raw))
        return ""

    def _write_taint(self, present: bool) -> Mapping[str, Any]:
        if (known := self._latest.get()) is not None:
            as_read = {"metadata": {"resourceVersion": known.version}, "spec": {"taints": known.taints}}
            with suppress(Conflict, Invalid):  # another client wrote in between: read the Node
                if operations := taint_patch(as_read, CHANGING_TAINT, present=present):
                    return self._patch_taint(operations, present)
        raw = self._read()
        operations = taint_patch(raw, CHANGING_TAINT, present=present)
        return self._patch_taint(operations, present) if operations else raw

    def _patch_taint(self, operations: Sequence[Mapping[str, Any]], present: bool) -> Mapping[str, Any]:
        with self._budget.request() as timeouts:
            raw = apply.json_patch(self._api, self._path, operations, manager=AGENT_MANAGER, timeouts=timeouts)
        log.info("node taint %s %s", TAINT_CHANGING, "set" if present else "removed")
        return raw

    def _write_label(self, present: bool) -> Mapping[str, Any]:
        raw = self._merge("", {"metadata": {"labels": {LABEL_MPS_DAEMONS: "true" if present else None}}})
        log.info("node label %s %s", LABEL_MPS_DAEMONS, "set" if present else "removed")
        return raw

    def _write_counts(
        self, version: str, allocatable: Mapping[str, int], capacity: Mapping[str, int]
    ) -> Mapping[str, Any]:
        texts = {name: str(count) for name, count in sorted(allocatable.items())}
        listed = {name: str(count) for name, count in sorted(capacity.items())}
        status = {"capacity": listed, "allocatable": texts}
        try:
            raw = self._merge("/status", {"metadata": {"resourceVersion": version}, "status": status})
        except Conflict:
            self._latest.accept(parse_node(self._read()))  # the watch may be late
            raise
        log.info("node allocatable written: %s", texts)
        return raw

    def _read(self) -> Mapping[str, Any]:
        with self._budget.request() as timeouts:
            return apply.get(self._api, self._path, timeouts=timeouts)

    def _merge(self, part: str, body: Mapping[str, Any], *, dry_run: bool = False) -> Mapping[str, Any]:
        path, manager = f"{self._path}{part}", AGENT_MANAGER
        with self._budget.request() as timeouts:
            return apply.merge_patch(self._api, path, body, manager=manager, timeouts=timeouts, dry_run=dry_run)
