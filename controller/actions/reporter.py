"""Reports what a pass decided: Events, metrics, one log line, and `decisions`.

Takes the result of a pass and the outcome of its writes. An unplaced pod gets an Event with the reason, a pod
that partitions are made for gets one (`pod_events` decides when), and so does each plan that was written. Decides
nothing; a slow API server loses Events and never holds up a pass.
"""

import logging
from collections import Counter
from collections.abc import Collection, Iterable

from controller.actions.decisions import Decisions
from controller.actions.environment import Environment
from controller.actions.label_warnings import LabelWarnings
from controller.actions.metrics import PLACED, ErrorStage
from controller.actions.plan_writer import Outcome, Written
from controller.actions.pod_events import SETTLE_SECONDS, PodEvents, Recorder, Statement, about_pod
from controller.api.plans import PlanReading
from controller.explanation.phrases import counted, gpus_of
from controller.model.results import NodeFailure, PlanningResult, PodFailure, Supply
from controller.model.snapshot import Snapshot
from controller.model.views import PodView
from crds.v1alpha1.names import API_VERSION, KIND, EventReason
from kube.change_log import ChangeLog
from kube.events import ObjectReference
from kube.logs import fields
from kube.timestamps import api_time

log = logging.getLogger(__name__)

ERRORS = (Written.FAILED, Written.UNANSWERED)
PLANNED_SECONDS = 5.0
"""A pod whose partitions are made sooner is bound by then: an Event on what it waits for would come too late."""


class Reporter:
    """Remembers what it has reported."""

    def __init__(self, environment: Environment, recorder: Recorder, *, mps_user_id: int | None = None) -> None:
        """`mps_user_id`: as whom MPS clients run; None: any."""
        self._mps_user_id = mps_user_id
        self._environment = environment
        self._metrics, self._state, self._clock = environment.metrics, environment.state, environment.clock
        self._recorder = recorder
        self._pod_events = PodEvents(recorder, clock=self._clock, waits=self._state.cluster.is_pending)
        self._label_warnings = LabelWarnings(recorder, self._state, clock=self._clock)
        self._written_at: dict[str, float] = {}
        self._failures = ChangeLog(log)
        self._pod_failures = ChangeLog(log)
        self._last_pass: tuple[object, ...] = ()
        self._drained: set[tuple[str, tuple[str, ...]]] = set()
        self.decisions = Decisions()

    def report(
        self, snapshot: Snapshot, result: PlanningResult, outcomes: Iterable[Outcome], seconds: float, *, why: str
    ) -> None:
        """Report one pass by Events, metrics, log and /decisions; `why` it ran goes into the log."""
        outcomes = tuple(outcomes)
        self._count(result, outcomes, seconds)
        ready = [placed.uid for placed in result.placed if placed.supply is Supply.EXISTING]
        self._pod_events.report(_statements(snapshot, result, self._mps_user_id), ready=ready)
        self._note_plans(result, outcomes)
        self._report_failures(result.failures)
        self._report_pod_failures(result.pod_failures, {missed.uid for missed in result.unplaced})
        self._failures.warn(" ".join(result.remarks), about="pass")
        self._log(result, outcomes, seconds, why)
        self.decisions = self.decisions.after(result, finished_at=api_time(self._environment.now()))

    def follow(self) -> None:
        """Emit Events that became due, and measure how long written plans take until the node's GPUs are settled."""
        self._label_warnings.run()
        self._pod_events.follow()
        if not self._written_at:
            return
        views = self._state.cluster.plan_views()
        for node, at in list(self._written_at.items()):
            view = views.get(node)
            if view is None:
                del self._written_at[node]
            elif view.gpus and all(gpu.settled for gpu in view.gpus):
                self._metrics.ready_seconds.observe(self._clock() - at)
                del self._written_at[node]

    def _count(self, result: PlanningResult, outcomes: tuple[Outcome, ...], seconds: float) -> None:
        self._metrics.passes.inc()
        self._metrics.planning_seconds.observe(seconds)
        self._metrics.placeable_pods.set(result.bound)
        drained = {(one.uid, one.partitions) for one in result.drained}
        self._metrics.drained_gpus.set(len(drained))
        self._metrics.drains.inc(len(drained - self._drained))
        self._drained = drained
        if result.cut_short is not None:
            self._metrics.cut_short.labels(reason=result.cut_short.value).inc()
        self._metrics.verdicts = {
            **{pod.uid: PLACED for pod in result.placed},
            **{pod.uid: pod.reason.value for pod in result.unplaced},
        }
        for phase, count in result.counts.placed_by:
            self._metrics.phase_placed_pods.labels(phase=phase.value).inc(count)
        changed = {change.node: len(change.changed) for change in result.node_changes}
        placed = Counter(pod.supply for pod in result.placed)
        for supply in Supply:
            self._metrics.placed_pods.labels(supply=supply.value).set(placed[supply])
        for outcome in outcomes:
            if outcome.written is Written.APPLIED:
                self._metrics.plans_applied.inc()
                self._metrics.gpus_changed.inc(changed.get(outcome.node, 0))
                self._metrics.apply_seconds.observe(outcome.seconds)
                self._written_at[outcome.node] = self._clock()
            elif outcome.written in ERRORS and not outcome.repeated:
                self._metrics.errors.labels(stage=ErrorStage.WRITE.value).inc()

    def _note_plans(self, result: PlanningResult, outcomes: tuple[Outcome, ...]) -> None:
        changes = {change.node: change for change in result.node_changes}
        pods = Counter(placed.node for placed in result.placed if placed.supply is Supply.NEW)
        for outcome in outcomes:
            if outcome.written is Written.APPLIED:
                log.info(
                    "plan %s: written",
                    outcome.node,
                    extra=fields(
                        node=outcome.node,
                        generation=outcome.generation,
                        gpus=",".join(map(str, changes[outcome.node].changed)),
                        pods=pods[outcome.node],
                        seconds=outcome.seconds,
                    ),
                )
            plan = self._state.cluster.plan(outcome.node)
            if plan is None:
                continue
            if outcome.written is Written.APPLIED:
                message = _planned(changes[outcome.node].changed, pods[outcome.node])
                self._recorder.emit(_about(plan), "Normal", EventReason.PLAN_WRITTEN, message)
            elif outcome.written is Written.FAILED and not outcome.repeated:
                # The server's words may differ each time, as where they name a port: one Event all the same.
                message = _unwritten(outcome)
                self._recorder.emit(_about(plan), "Warning", EventReason.PLAN_FAILED, message, series="unwritten")

    def _report_failures(self, failures: Iterable[NodeFailure]) -> None:
        """An Event and the traceback in the log for each node that was left out, again only when the error differs."""
        failed = {failure.node: failure for failure in failures}
        self._metrics.failed_nodes.set(len(failed))
        self._failures.retain({*failed, "pass"})
        for node, failure in failed.items():
            if not self._failures.is_new(f"{failure.message} {failure.trace}", node):
                continue
            log.error("node %s is left out, planning it failed: %s", node, failure.trace or failure.message)
            plan = self._state.cluster.plan(node)
            if plan is not None:
                self._recorder.emit(_about(plan), "Warning", EventReason.PLAN_FAILED, _left_out(failure))

    def _report_pod_failures(self, failures: Iterable[PodFailure], explained: Collection[str]) -> None:
        """The same for each pod that was set aside; who owns one of `explained` (uids) reads why it waits."""
        failed = {failure.uid: failure for failure in failures}
        self._metrics.set_aside_pods.set(len(failed))
        self._pod_failures.retain(failed.keys())
        for uid, failure in failed.items():
            if not self._pod_failures.is_new(f"{failure.message} {failure.trace}", uid):
                continue
            name = "/".join(failure.key)
            log.error("pod %s is set aside, planning with it failed: %s", name, failure.trace or failure.message)
            if uid not in explained:
                self._recorder.emit(
                    about_pod(failure.key, uid), "Warning", EventReason.PLAN_FAILED, _set_aside(failure)
                )

    def _log(self, result: PlanningResult, outcomes: tuple[Outcome, ...], seconds: float, why: str) -> None:
        tally = Counter(outcome.written for outcome in outcomes)
        counts = result.counts
        reasons = Counter(pod.reason.value for pod in result.unplaced)
        outcome_of_pass = (len(result.placed), result.bound, counts, reasons)
        news = tally[Written.APPLIED] > 0 or outcome_of_pass != self._last_pass
        self._last_pass = outcome_of_pass
        log.log(
            logging.INFO if news else logging.DEBUG,  # a pass that changed nothing is worth no line
            "pass %d: %d of %d pods placed (at most %d could be), %d plans written",
            self.decisions.number + 1,
            len(result.placed),
            len(result.placed) + len(result.unplaced),
            result.bound,
            tally[Written.APPLIED],
            extra=fields(
                why=why,
                existing=counts.placed_existing,
                under_way=counts.placed_under_way,
                new=counts.placed_new,
                unplaced=len(result.unplaced),
                reasons=",".join(f"{reason}:{count}" for reason, count in sorted(reasons.items())),
                gpus_changed=counts.gpus_changed,
                created=counts.partitions_created,
                destroyed=counts.partitions_destroyed,
                seconds=seconds,
            ),
        )
        for outcome in outcomes:
            if outcome.written in (*ERRORS, Written.OVERTAKEN) and not outcome.repeated:
                log.warning("plan %s: %s: %s", outcome.node, outcome.written.value, outcome.message)
        if tally[Written.UNSENT]:
            log.info("%d plans were not sent and are planned again", tally[Written.UNSENT])


def _about(plan: PlanReading) -> ObjectReference:
    return ObjectReference(api_version=API_VERSION, kind=KIND, name=plan.name, uid=plan.uid)


def _statements(snapshot: Snapshot, result: PlanningResult, mps_user_id: int | None) -> Iterable[Statement]:
    """What is reported of each pod of the result; the last of a pod explains why it waits."""
    live = {pod.uid: pod for pod in snapshot.pending}
    decided = {pod.uid for pod in result.placed} | {pod.uid for pod in result.unplaced}
    drained = {one.uid: f"{one.node} {one.gpu}" for one in result.drained}
    for pod in snapshot.pending:
        if mps_user_id is not None and pod.uid in decided and set(pod.mps_users) - {mps_user_id}:
            yield _about_mps_user(pod, mps_user_id)
    for missed in result.unplaced:
        yield Statement(
            uid=missed.uid,
            key=missed.key,
            reason=missed.reason,
            message=missed.message,
            type="Normal" if missed.reason.routine else "Warning",
            settle_seconds=SETTLE_SECONDS if missed.reason.in_flight else 0.0,
            cause=drained.get(missed.uid, ""),
        )
    for placed in result.placed:
        if placed.supply is not Supply.EXISTING:  # then the scheduler reports Scheduled in a moment
            wants = ", ".join(f"{amount} {resource}" for resource, amount in live[placed.uid].gpu)
            message = f"Creating {wants} on node {placed.node} for this pod."
            yield Statement(
                uid=placed.uid,
                key=placed.key,
                reason=EventReason.PLANNED,
                message=message,
                type="Normal",
                settle_seconds=PLANNED_SECONDS,
                cause=placed.node,
            )


def _about_mps_user(pod: PodView, user: int) -> Statement:
    message = (
        f"This pod requests an MPS slice and does not run as user {user}. An MPS server serves one user at a time: "
        f"CUDA in it waits while pods of user {user} use the GPU, and makes them wait. "
        f"Set securityContext.runAsUser: {user}."
    )
    reason = EventReason.MPS_USER
    return Statement(uid=pod.uid, key=pod.key, reason=reason, message=message, channel=reason)


def _planned(indexes: Iterable[int], pods: int) -> str:
    gpus = gpus_of(tuple(indexes))
    if not pods:  # it puts back what a pod took while the plan was on its way
        return f"Updated the plan of {gpus} to match the partitions in use."
    return f"Repartitioning {gpus} for {counted(pods, 'pending pod')}."


def _left_out(failure: NodeFailure) -> str:
    return (
        f"Planning this node failed ({failure.message}): its plan stays as it is and no pod is planned for it. It is "
        "tried again in each pass; report the traceback in the controller's log together with this plan."
    )


def _set_aside(failure: PodFailure) -> str:
    return (
        f"Planning with this pod failed ({failure.message}): what it holds counts, its affinity and labels do not. "
        "Report the traceback in the controller's log together with this pod."
    )


def _unwritten(outcome: Outcome) -> str:
    return (
        f"The plan could not be written ({outcome.message}): it stays as it is, and until a write succeeds no pod is "
        "planned for this node. It is tried again after a back-off. If a policy or a missing permission "
        "refuses it, allow it."
    )
