"""Runs one pass after the other: the only module of the controller that knows the whole order.

    API ─ pods, nodes, plans, leases ─► watches ─► api ─► cache ── snapshot() ──┐   ┌─────────── pure ───────────┐
                                         └─ what changed ─► window ── is over ──┴─► │ planner ─► explanation     │
                                                                                    │   simulator · partitioning │
    API ◄─ plan.spec.planned (apply) ◄──── plan_writer ◄──── PlanningResult ◄───────┴────────────────────────────┘
    API ◄─ Events, metrics, one log line ◄─ reporter ◄──────┘
    API ◄─ nominations, AgentAlive, plans ◄─ nominator, agent_liveness, plan_lifecycle: every turn
    API ◄─ labels, NVIDIA's ConfigMap ◄─ node_labels, nvidia_configs: every turn

Runs on one thread, and writes only while this process leads. A pass that breaks is logged with its traceback once,
counted, and retried after a back-off; nothing is lost, since everything is read again from the state.
"""

import logging
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from controller.actions.agent_liveness import AgentLiveness
from controller.actions.environment import Environment
from controller.actions.metrics import ErrorStage
from controller.actions.node_labels import NodeLabels
from controller.actions.nominations import Nominator
from controller.actions.nvidia_configs import NvidiaConfigs
from controller.actions.plan_lifecycle import PlanLifecycle
from controller.actions.plan_writer import Outcome, Writer, Written, as_written
from controller.actions.pod_latency import PassTimes, PodLatency
from controller.actions.reporter import Reporter
from controller.cache.batcher import Batcher
from controller.early import early_result
from controller.explanation.phrases import listed
from controller.gc_pause import collector_paused
from controller.lifetime import Lifetime
from controller.model.results import PlanningResult, Supply
from controller.model.snapshot import Snapshot
from kube.backoff import Backoff
from kube.change_log import ChangeLog

log = logging.getLogger(__name__)

TURN_SECONDS = 1.0
"""Longest time between two turns: deadlines are kept to this."""
WAIT_SECONDS = 0.2
"""Between two checks whether the watches are synced and this process leads."""
PAUSE_SECONDS = 0.05
"""Shortest one: events that come together are handled together."""
REST_SHARE = 3.0
"""Rest after a turn, as a multiple of the time it took: a busy cluster must not cost a whole core."""
LONGEST_REST_SECONDS = 2.0
"""After a long pass, too: its pods wait for their nominations, and a loop that rests must not seem stuck."""
FIRST_BACKOFF_SECONDS = 1.0
LAST_BACKOFF_SECONDS = 60.0
STUCK_SECONDS = 120.0
FAILED_PASSES = 3
"""After so many failed passes in a row this process is not ready: one may be a race, more are a defect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that a turn uses, in the order in which it does."""

    environment: Environment
    window: Batcher[str]
    plan_lifecycle: PlanLifecycle
    agent_liveness: AgentLiveness
    node_labels: NodeLabels
    nvidia_configs: NvidiaConfigs
    planner: Callable[[Snapshot], PlanningResult]
    writer: Writer
    nominator: Nominator
    reporter: Reporter
    pod_latency: PodLatency


class Loop:
    """Call `run` on the thread that is to do the work; everything else may be called from any thread."""

    def __init__(self, parts: Parts, *, lifetime: Lifetime, synced: Callable[[], bool]) -> None:
        """`synced`: what the state holds is what the cluster is."""
        self._parts = parts
        self._state, self._metrics = parts.environment.state, parts.environment.metrics
        self._leading, self._clock = parts.environment.leading, parts.environment.clock
        self._lifetime = lifetime
        self._synced = synced
        self._began = False
        self._in_pass = False
        self._busy = False
        self._turned_at = self._clock()
        self._retry_at: float | None = None
        self._failed_passes = 0
        self._at_once = False
        self._backoff = Backoff(first_seconds=FIRST_BACKOFF_SECONDS, cap_seconds=LAST_BACKOFF_SECONDS)
        self._tracebacks = ChangeLog(log)
        """One per step that is failing."""

    def run(self) -> None:
        """Turn until the process ends."""
        while not self._lifetime.over:
            began = self._clock()
            seconds = self.turn()
            spent = self._clock() - began
            self._lifetime.wait(rest_seconds(spent))
            self._lifetime.awake.wait(seconds)
            self._lifetime.awake.clear()

    def turn(self) -> float:
        """Do what is due; the seconds until something may be due again."""
        self._turned_at = self._clock()
        self._metrics.leader.set(self._leading())
        if not self._synced():
            return WAIT_SECONDS
        self._parts.pod_latency.begin()
        if not self._leading():
            return WAIT_SECONDS
        if not self._began:
            self._began = True
            self._parts.window.add("start")
        self._step(ErrorStage.STATE, self._state.tick)
        self._step(ErrorStage.LIFECYCLE, self._run_lifecycle)
        self._step(ErrorStage.AGENTS, self._parts.agent_liveness.run)
        self._step(ErrorStage.LABELS, self._parts.node_labels.run)
        self._step(ErrorStage.CONFIGS, self._parts.nvidia_configs.run)
        if self._retry_at is not None and self._clock() >= self._retry_at:
            self._retry_at = None
            self._parts.window.add("retry")
        if self._at_once or self._parts.window.due_in() == 0:
            self._pass()
        elif self._parts.window.early and not self._state.cluster.listing:
            self._pass(early=True)
        self._step(ErrorStage.NOMINATE, self._parts.nominator.run)
        self._step(ErrorStage.REPORT, self._follow)
        next_in = self._parts.window.next_in()
        return TURN_SECONDS if next_in is None else min(next_in, TURN_SECONDS)

    def _follow(self) -> None:
        self._parts.pod_latency.follow()
        self._parts.reporter.follow()

    def _run_lifecycle(self) -> None:
        self._busy = True
        self._busy = self._parts.plan_lifecycle.run()

    def _pass(self, *, early: bool = False) -> None:
        self._in_pass = True
        try:
            keys = self._parts.window.take()
            self._at_once = False
            if self._step(ErrorStage.PLANNING, lambda: self._plan_and_write(keys, early=early)):
                self._failed_passes = 0
                self._backoff.reset()
            else:
                self._failed_passes += 1
                self._retry_at = self._clock() + self._backoff.next_seconds()
        finally:
            self._in_pass = False

    def _plan_and_write(self, keys: Collection[str], *, early: bool) -> None:
        parts = self._parts
        snapshot = self._state.cluster.snapshot()
        why = causes(keys, {pod.uid: "/".join(pod.key) for pod in snapshot.pending})
        began = self._clock()
        with collector_paused():
            result = self._early(snapshot, keys) if early else parts.planner(snapshot)
        if result is None:
            parts.window.put_back(keys)
            return
        planned = self._clock()
        ready = [placed.uid for placed in result.placed if placed.supply is Supply.EXISTING]
        self._state.reserve({placed.uid: placed.node for placed in result.placed}, ready=ready)
        self._state.note_drained(result.drained)
        self._state.note_unexamined(result.unexamined)
        outcomes = parts.writer.write(result, snapshot)
        achieved = as_written(result, outcomes)
        self._state.withdraw_reservations({pod.uid for pod in result.placed} - {pod.uid for pod in achieved.placed})
        parts.pod_latency.planned(achieved, PassTimes(began=began, planned=planned, written=self._clock()))
        parts.reporter.report(snapshot, achieved, outcomes, planned - began, why=why)
        self._plan_again(outcomes)

    def _early(self, snapshot: Snapshot, keys: Collection[str]) -> PlanningResult | None:
        new = frozenset(name for kind, _, name in (key.partition(" ") for key in keys) if kind == "pod")
        return early_result(snapshot, new, self._parts.planner, news=len(new) < len(keys))

    def _plan_again(self, outcomes: tuple[Outcome, ...]) -> None:
        """A refused node is left out of the next pass; the state triggers another one when it may be retried."""
        for outcome in outcomes:
            if outcome.written in (Written.OVERTAKEN, Written.UNANSWERED):
                self._parts.window.add(f"node {outcome.node}")
        self._at_once = any(outcome.written in (Written.UNSENT, Written.FAILED) for outcome in outcomes)

    def _step(self, stage: ErrorStage, action: Callable[[], None]) -> bool:
        """Run one step; whatever breaks in it must not keep the others from running."""
        try:
            action()
        except Exception:
            self._metrics.errors.labels(stage=stage.value).inc()
            if self._tracebacks.is_new(traceback.format_exc(), stage):
                log.exception("%s failed and will be tried again", stage)
            return False
        self._tracebacks.is_new("", stage)
        return True

    @property
    def idle(self) -> bool:
        """Nothing is due and nothing is being done: what /decisions shows holds until the cluster changes."""
        open_ends = self._parts.window.open or self._retry_at is not None or self._at_once
        open_ends = open_ends or self._state.cluster.open_ends
        return self._began and self._leading() and not (open_ends or self._in_pass or self._busy)

    def decisions(self) -> dict[str, Any]:
        """The document behind /decisions."""
        idle = self.idle  # read first: decisions that end meanwhile are newer than it claims, never older
        views = self._state.cluster.plan_views()
        under_way = [name for name, view in views.items() if any(gpu.under_way for gpu in view.gpus)]
        return self._parts.reporter.decisions.document(idle=idle, under_way=under_way)

    def failing(self) -> list[str]:
        """Why this process is not ready although it works: its passes fail; empty while they succeed."""
        if self._failed_passes < FAILED_PASSES:
            return []
        *_, error = self._tracebacks.last(ErrorStage.PLANNING).strip().splitlines() or [""]
        return [f"{self._failed_passes} planning passes in a row have failed: {error}: see the traceback in the log"]

    def problems(self) -> list[str]:
        """Why this process should be restarted; empty while it works."""
        silent_seconds = self._clock() - self._turned_at
        if silent_seconds > STUCK_SECONDS:
            return [f"the main loop has not completed a turn for {silent_seconds:.0f} s"]
        return []


def rest_seconds(spent_seconds: float) -> float:
    """How long nothing is done after a turn of this length, whatever happens meanwhile."""
    return min(max(PAUSE_SECONDS, REST_SHARE * spent_seconds), LONGEST_REST_SECONDS)


def causes(keys: Iterable[str], pods: Mapping[str, str]) -> str:
    """Why a pass runs, for the log: which pods and nodes changed, and every other key of the window.

    `pods` are the names of pending pods by uid.
    """
    named: dict[str, list[str]] = {}
    others = []
    for key in keys:
        kind, _, name = key.partition(" ")
        if name and kind in ("pod", "node"):
            named.setdefault(kind, []).append(pods.get(name, "one that is gone") if kind == "pod" else name)
        else:
            others.append(key)
    return "; ".join([*(f"{kind}s: {listed(names)}" for kind, names in named.items()), *others]) or "plans not written"
