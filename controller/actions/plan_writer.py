"""Writes `spec.planned` of each changed plan by server-side apply, and nothing else of the spec.

Takes the node changes of one pass with the plan views that it was made from and returns one outcome per node. Every
write carries uid and resourceVersion. A refusal for a stale version is normal, since the agent's status writes move it:
while uid and generation are the same and no more of the GPUs is in use, by status and by the pods bound to the node,
the write is sent again, otherwise the node is planned again.
Pinned indexes are left out, unchanged items are written back as they are stored. Nothing is written in Manual or paused
plans but the removal of pinned indexes, which the admission policy allows there too.
"""

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from controller.actions.environment import Environment
from controller.api.plan_items import item_of
from controller.api.plans import PlanReading
from controller.api.reading import Unreadable
from controller.model.reasons import UnplacedReason
from controller.model.results import NodeChange, NodeFailure, Placed, PlanningResult, Supply, Unplaced
from controller.model.snapshot import Snapshot
from controller.model.views import PlanView
from crds.v1alpha1 import paths
from crds.v1alpha1.names import CONTROLLER_MANAGER, Mode
from crds.v1alpha1.plan import plan_body
from kube import apply, errors
from kube.concurrency import SENDING_SECONDS, at_once
from kube.retry import RetryGate
from kube.transport import Timeouts

log = logging.getLogger(__name__)
ATTEMPTS = 8
FIRST_PAUSE_SECONDS = 5.0
"""Half of it, the least pause, is longer than the loop rests: the next pass sees the node as refused."""
TOO_MANY_REQUESTS = 429
"""The API server turned the request away before it read it."""
READ_BACK = Timeouts(read_seconds=5.0)
"""After a write without an answer: a turn that waits twice as long would seem stuck."""

Items = list[dict[str, Any]]


class Written(Enum):
    """What became of one node's change."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    OVERTAKEN = "overtaken"
    """The plan or its use changed meanwhile: plan again."""
    NOT_OURS = "not ours"
    """Manual, paused, or not enabled any more."""
    UNSENT = "unsent"
    """The turn's time for writing was over, or the Lease had lapsed: plan again at once where this one leads."""
    UNANSWERED = "unanswered"
    """Perhaps written: plan again, after a window, with what the watch has brought by then."""
    FAILED = "failed"
    """The API server refused it: plan again at once, around this node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One node: what happened, and the server's sentence where it refused; `repeated`: as it did before."""

    node: str
    written: Written
    message: str = ""
    seconds: float = 0.0
    generation: int = 0
    """Of the plan as it was written."""
    repeated: bool = False

    @property
    def in_force(self) -> bool:
        """The plan holds what was decided."""
        return self.written in (Written.APPLIED, Written.UNCHANGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Basis:
    """What a decision rests on: while it holds, the decision may be sent again."""

    uid: str
    generation: int
    in_use: frozenset[tuple[str, str]]
    """Used partitions, by GPU and id."""
    holders: frozenset[str]
    """Uids of pods that the decision counts on this node's GPUs, bound there or placed there by it."""

    @classmethod
    def of_view(cls, view: PlanView, holders: Iterable[str]) -> "_Basis":
        in_use = frozenset((gpu.uuid, p.id) for gpu in view.gpus for p in gpu.partitions if p.used)
        return cls(uid=view.uid, generation=view.generation, in_use=in_use, holders=frozenset(holders))

    @classmethod
    def of_reading(cls, reading: PlanReading, holders: frozenset[str]) -> "_Basis":
        return cls(uid=reading.uid, generation=reading.generation, in_use=reading.in_use, holders=holders)

    def allows(self, now: "_Basis") -> bool:
        """Nothing is in use now that was not counted; what was released meanwhile only makes more room."""
        same_plan = (self.uid, self.generation) == (now.uid, now.generation)
        return same_plan and now.in_use <= self.in_use and now.holders <= self.holders


class Writer:
    """Writes plans while this controller leads."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._api, self._state, self._clock = environment.api, environment.state, environment.clock
        self._retries: RetryGate[str] = RetryGate(clock=self._clock, first_seconds=FIRST_PAUSE_SECONDS)

    def write(self, result: PlanningResult, snapshot: Snapshot) -> tuple[Outcome, ...]:
        """Write every change that was planned from this snapshot, in order; one node's failure leaves the others.

        Sends nothing more once the turn's time for it is over.
        """
        bases, until = _bases(result, snapshot), self._clock() + SENDING_SECONDS

        def write(change: NodeChange) -> Outcome:
            if self._clock() >= until:
                return Outcome(node=change.node, written=Written.UNSENT, message="not sent in time")
            return self._write(change, bases.get(change.node))

        return at_once(write, result.node_changes)

    def drop_pinned(self, reading: PlanReading) -> Outcome:
        """Take GPUs that users have pinned out of `planned`: they are ignored there, and would mislead readers.

        Raises the ApiError where the server refuses.
        """
        kept = [item for index, item in sorted(reading.planned_items.items()) if index not in reading.stale_items]
        return self._apply(self._basis(reading), reading, kept)

    def _basis(self, reading: PlanReading) -> _Basis:
        return _Basis.of_reading(reading, self._state.cluster.holders(reading.name))

    def _write(self, change: NodeChange, basis: _Basis | None) -> Outcome:
        reading = self._state.cluster.plan(change.node)
        if basis is None or reading is None:
            return Outcome(node=change.node, written=Written.OVERTAKEN, message="the plan is gone")
        node = self._state.cluster.node(change.node)
        if node is None or node.partitioning is None:
            return Outcome(node=change.node, written=Written.NOT_OURS, message="the node is not enabled any more")
        if reading.mode != Mode.AUTO or reading.paused:
            return Outcome(node=change.node, written=Written.NOT_OURS, message="the plan is Manual or paused")
        if not self._retries.may_send(change.node):
            return self._still_refused(change.node)
        try:
            outcome = self._apply_or_read_back(basis, reading, planned_items(change, reading))
        except errors.ApiError as error:
            return self._failed(change.node, error)
        except Exception as error:  # noqa: BLE001 - items that cannot be written are no reason to lose other nodes' plans
            failure = errors.ApiError(NodeFailure.of(change.node, error).message)
            return self._failed(change.node, failure, cause=error)
        if outcome.in_force:
            self._retries.succeeded(change.node)
        return outcome

    def _still_refused(self, node: str) -> Outcome:
        """Its plan was gone or unreadable for a moment, so the state has forgotten the refusal: report it again."""
        message = self._retries.reported(node)
        self._state.write_refused(node, message, until=self._retries.retry_at(node))
        return Outcome(node=node, written=Written.FAILED, message=message, repeated=True)

    def _failed(self, node: str, error: errors.ApiError, *, cause: Exception | None = None) -> Outcome:
        """Plan around this node until its back-off ends: the planner would choose it again and again."""
        news = self._retries.failed(node, error)
        if news and cause is not None:
            log.error("plan %s cannot be written", node, exc_info=cause)
        self._state.write_refused(node, error.message, until=self._retries.retry_at(node))
        return Outcome(node=node, written=Written.FAILED, message=error.message, repeated=not news)

    def _apply_or_read_back(self, basis: _Basis, reading: PlanReading, items: Items) -> Outcome:
        """A write without an answer may have been carried out: then its pods must not be planned on another node.

        Where the plan cannot be read either, its node stays eligible, so that the next pass chooses it again.
        """
        name, began = reading.name, self._clock()
        try:
            return self._apply(basis, reading, items)
        except errors.Unavailable as error:
            if error.status == TOO_MANY_REQUESTS:
                raise
            try:
                current = self._read(name, timeouts=READ_BACK)
            except errors.Unavailable:
                return Outcome(node=name, written=Written.UNANSWERED, message=error.message)
            if current is None or current.planned_json != _json(items):
                raise
            seconds = self._clock() - began
            return Outcome(node=name, written=Written.APPLIED, seconds=seconds, generation=current.generation)

    def _apply(self, basis: _Basis, reading: PlanReading, items: Items) -> Outcome:
        name, began = reading.name, self._clock()
        planned_json = _json(items)
        current: PlanReading | None = reading
        for _ in range(ATTEMPTS):
            if current is None or not basis.allows(self._basis(current)):
                return Outcome(node=name, written=Written.OVERTAKEN, message="the plan or its use has changed")
            if planned_json == current.planned_json:
                return Outcome(node=name, written=Written.UNCHANGED)
            if not self._environment.leading():
                return Outcome(node=name, written=Written.UNSENT, message="this controller does not lead now")
            self._state.expect_planned(name, planned_json)
            try:
                answer = apply.apply(
                    self._api, paths.plan(name), _body(current, items), manager=CONTROLLER_MANAGER, force=True
                )
            except errors.ApiError as error:
                if not errors.is_stale(error):
                    raise
                current = self._read(name)
                continue
            self._state.plan_answered(name, self._state.read_plan(answer))
            generation, seconds = int(answer["metadata"]["generation"]), self._clock() - began
            return Outcome(node=name, written=Written.APPLIED, seconds=seconds, generation=generation)
        return Outcome(node=name, written=Written.OVERTAKEN, message="the plan changes faster than it can be written")

    def _read(self, name: str, *, timeouts: Timeouts = apply.ONE_OBJECT) -> PlanReading | None:
        try:
            found = self._state.read_plan(apply.get(self._api, paths.plan(name), timeouts=timeouts))
        except errors.NotFound:
            return None
        self._state.plan_answered(name, found)
        return None if isinstance(found, Unreadable) else found


def _bases(result: PlanningResult, snapshot: Snapshot) -> dict[str, _Basis]:
    """Per node that changes, what its change rests on."""
    holders: dict[str, set[str]] = {change.node: set() for change in result.node_changes}
    for pod in snapshot.pods:
        if pod.gpu and pod.node in holders:
            holders[pod.node].add(pod.uid)
    for placed in result.placed:
        if placed.node in holders:
            holders[placed.node].add(placed.uid)
    return {plan.name: _Basis.of_view(plan, holders[plan.name]) for plan in snapshot.plans if plan.name in holders}


def planned_items(change: NodeChange, reading: PlanReading) -> Items:
    """The whole new list. An item that did not change is sent as it is stored: its hash is what the agent confirmed."""
    stored = reading.planned_items
    items = []
    for gpu in sorted(change.gpus, key=lambda gpu: gpu.index):
        if gpu.index in reading.pinned:
            continue
        keep = gpu.index not in change.changed and gpu.index in stored
        items.append(stored[gpu.index] if keep else item_of(gpu).wire())
    return items


def as_written(result: PlanningResult, outcomes: Iterable[Outcome]) -> PlanningResult:
    """The result without pods that were placed on partitions of a plan that was not written: these are unplaced."""
    failed = {outcome.node: outcome for outcome in outcomes if not outcome.in_force}
    lost = [pod for pod in result.placed if pod.supply is Supply.NEW and pod.node in failed]
    if not lost:
        return result
    without = {pod.uid for pod in lost}
    counts = result.counts
    return replace(
        result,
        placed=tuple(pod for pod in result.placed if pod.uid not in without),
        unplaced=(*result.unplaced, *(_not_written(pod, failed[pod.node]) for pod in lost)),
        counts=replace(counts, placed_new=counts.placed_new - len(lost), unplaced=counts.unplaced + len(lost)),
    )


def _not_written(pod: Placed, outcome: Outcome) -> Unplaced:
    """The next pass, which follows soon, plans around a node that was refused, or reports why none serves."""
    failed = "may not have been written" if outcome.written is Written.UNANSWERED else "was not written"
    message = f"The plan of node {pod.node} {failed} ({outcome.message}). This pod is planned again."
    return Unplaced(uid=pod.uid, key=pod.key, reason=UnplacedReason.CHANGE_UNDER_WAY, message=message)


def _json(items: Items) -> str:
    return json.dumps(items, separators=(",", ":"))


def _body(reading: PlanReading, items: Items) -> dict[str, Any]:
    metadata = {"name": reading.name, "uid": reading.uid, "resourceVersion": reading.version}
    return plan_body(metadata, spec={"planned": {"gpus": items}})
