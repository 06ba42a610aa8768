"""The last stage of a pass: reports its result to the API, Prometheus, Events and the log.

Takes a `PassResult`; writes the status, counts series, emits Events on the plan and on refused pods, and logs each
change of a GPU's state. Remembers what it has reported already, and nothing that a later pass acts on. A failed write
is counted and retried; it must never stop a pass.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from crds.v1alpha1 import names
from crds.v1alpha1.names import EventReason, GpuState, Reason
from crds.v1alpha1.status import LastChange
from kube.change_log import ChangeLog
from kube.errors import ApiError
from kube.events import EventType, ObjectReference
from kube.logs import fields
from nodeagent.desired.plan import ObservedPlan
from nodeagent.durations import Durations
from nodeagent.observed.pods import NodePod
from nodeagent.outcome.pass_result import GpuOutcome, PassResult
from nodeagent.report.drift import DriftWatch
from nodeagent.report.last_change import in_words
from nodeagent.report.metrics import ACTUATE, ALLOCATABLE, REGISTER, AgentMetrics
from nodeagent.report.mps_alarms import MpsAlarms
from nodeagent.report.operator_labels import missing
from nodeagent.report.publish import same
from nodeagent.report.status import plan_status

log = logging.getLogger(__name__)
RETRY_SECONDS = 2.0
LABELS_SECONDS = 10.0
BRIEF_SECONDS = 0.5
"""A new list that the kubelet and the Node show sooner, as nearly always, is reported with that in one status."""
QUICK_SECONDS = 5.0
"""A change that was over sooner has no Event: the status says what it was, and a person hardly saw it."""
PIDS_SECONDS = 60.0
"""Between two writes of a status in which the numbers of processes alone have changed."""
_PID = re.compile(r"\bprocess \d+")


@dataclass(slots=True, kw_only=True)
class _Begun:
    """A GPU's change to an item."""

    item_hash: str
    since: float
    at: float
    """When its last phase ended."""
    over: int = 0
    """How many phases are over."""


@dataclass(kw_only=True)
class Reporter:
    write: Callable[[ObservedPlan, Mapping[str, Any]], float | None]
    """That of `publish.StatusWriter`."""
    emit: Callable[[ObjectReference, EventType, EventReason | Reason, str], None]
    """That of `kube.events.EventRecorder`."""
    metrics: AgentMetrics
    clock: Callable[[], float]
    now: Callable[[], str]
    version: str
    """Of this agent."""

    def __post_init__(self) -> None:
        self._drift, self._mps_alarms = DriftWatch(), MpsAlarms()
        self._durations, self._missing_labels = Durations(self.clock), ChangeLog(log)
        self._begun: dict[str, _Begun] = {}
        self._states: dict[int, tuple[str, str]] = {}
        self._started = self.now()
        self._refused_uids = self._twice_uids = frozenset[str]()
        self._pids_at = -PIDS_SECONDS

    def report(self, result: PassResult) -> float | None:
        """The seconds after which the status must be written again, if it could not be now."""
        for done in result.work.actuated.values():
            self.metrics.actuated(done)
        self._note_repairs(result)
        self._note_mps(result)
        plan = result.observation.plan
        status = plan_status(result, plan, version=self.version, now=self.now()) if plan is not None else None
        for outcome in result.outcomes:
            self._note(outcome, result, status)
        self._note_refused(result)
        self._note_twice(result)
        if result.observation.driver_problem is not None and not result.observation.driver_closed:
            self.metrics.error(f"driver-{result.observation.driver_problem.kind}")
        self._note_missing_labels(result)
        ready = all(outcome.state is GpuState.READY for outcome in result.outcomes if outcome.managed)
        if plan is not None and ready and not (result.problem or result.held_twice):
            self.metrics.generation.set(plan.generation)
        self.metrics.found(result.outcomes, result.observation.readings.mps)
        if plan is None or status is None:
            return None
        if not same(status, plan.status) and same(_without_pids(status), _without_pids(plan.status)):
            # A process that ends and is started again and again has another number in each pass.
            if self.clock() < self._pids_at + PIDS_SECONDS:
                return None
            self._pids_at = self.clock()
        if plan.status.get("gpus") and not plan.handed_back and self._is_brief(result):
            return BRIEF_SECONDS
        try:
            return self.write(plan, status)
        except ApiError:
            # The writer has logged it, and knows how long it waits.
            self.metrics.error("status")
            return RETRY_SECONDS

    def _is_brief(self, result: PassResult) -> bool:
        """All that is missing is the kubelet's and the Node's word on a list that is new."""
        reasons = {outcome.reason for outcome in result.outcomes if outcome.managed}
        brief = Reason.ADVERTISING in reasons and reasons <= {Reason.ADVERTISING, Reason.CONFIRMED}
        brief = brief and not result.work.desired.by_nvidia  # whose plugin needs longer
        return brief and self._durations.seconds("advertising") < BRIEF_SECONDS

    def _note(self, outcome: GpuOutcome, result: PassResult, status: Mapping[str, Any] | None) -> None:
        """One GPU: whether its state has changed, and how long it took to be confirmed."""
        plan = result.observation.plan
        state = (str(outcome.state), str(outcome.reason))
        before = self._states.get(outcome.index)
        seconds = None if outcome.gpu is None else self._measure(outcome.gpu.uuid, outcome, result)
        if before != state:
            self._states[outcome.index] = state
            text = f": {outcome.message}" if outcome.message else ""
            log.info("GPU %d: %s (%s)%s", outcome.index, *state, text, extra=_fields(outcome, seconds))
            # Of a GPU that an earlier agent has confirmed already, Ready is not reported again.
            known = before is None and outcome.gpu is not None and outcome.gpu.uuid in result.work.confirmed
            quick = seconds is not None and seconds < QUICK_SECONDS and (before or state)[0] != GpuState.FAILED
            failed, ready = outcome.state is GpuState.FAILED, outcome.state is GpuState.READY and not (known or quick)
            if plan is not None and status is not None and (failed or ready):
                kind: EventType = "Warning" if failed else "Normal"
                self.emit(_about(plan), kind, outcome.reason, _event_text(outcome, status, plan.generation))

    def _measure(self, uuid: str, outcome: GpuOutcome, result: PassResult) -> float | None:
        """How long the GPU's change takes, in whole and by phase; the seconds where it is over."""
        if not outcome.managed:
            self._begun.pop(uuid, None)
            return None
        ready, now = outcome.state is GpuState.READY, self.clock()
        begun = self._begun.get(uuid)
        if begun is None or begun.item_hash != outcome.item_hash:
            self._begun.pop(uuid, None)
            if ready:
                return None
            begun = self._begun[uuid] = _Begun(item_hash=outcome.item_hash, since=now, at=now)
        shown = ready or result.work.advertised.confirmation.all_allocatable
        phases = ((ACTUATE, outcome.converged), (REGISTER, shown), (ALLOCATABLE, ready))
        for phase, over in phases[begun.over :]:
            if not over:
                break
            self.metrics.phases.labels(phase).observe(now - begun.at)
            begun.over, begun.at = begun.over + 1, now
        if ready:
            del self._begun[uuid]
            self.metrics.applied.observe(now - begun.since)
            return now - begun.since
        return None

    def _note_repairs(self, result: PassResult) -> None:
        for done, message in self._drift.repairs(result):
            self.metrics.drift_repaired(done)
            self._warn(result, EventReason.DRIFT_REPAIRED, message)

    def _note_missing_labels(self, result: PassResult) -> None:
        """With `operatorLabels: manage` the controller sets them within some seconds."""
        message = missing(result.observation.readings.node, disabled=result.observation.disabled)
        young = bool(message) and self._durations.seconds(message) < LABELS_SECONDS
        self._durations.end_pass()
        if not young and self._missing_labels.is_new(message):
            self._warn(result, Reason.OPERATOR_LABELS_MISSING, message)

    def _note_mps(self, result: PassResult) -> None:
        for count, message in self._mps_alarms.new(result.observation.readings.mps, result.observation.gpus):
            self.metrics.mps_alarms.inc(count)
            self._warn(result, EventReason.MPS_RESTORED, message)

    def _warn(self, result: PassResult, reason: EventReason | Reason, message: str) -> None:
        log.warning("%s", message)
        if result.observation.plan is not None:
            self.emit(_about(result.observation.plan), "Warning", reason, message)

    def _note_twice(self, result: PassResult) -> None:
        """Each pod hears of itself only: the other one may be of another tenant."""
        twice = result.observation.usage.twice
        self.metrics.held_twice.set(len(twice))
        holders = {pod.uid: pod for pods, lasts in twice.values() if lasts for pod in pods}
        for pod in (holders[uid] for uid in sorted(holders.keys() - self._twice_uids)):
            message = (
                f"Another pod also has the GPU partition of pod {pod.title}: the kubelet gave it away twice, after "
                "losing a record. An administrator must delete one of the two."
            )
            self.emit(_about_pod(pod), "Warning", Reason.HELD_TWICE, message)
        self._twice_uids = frozenset(holders)

    def _note_refused(self, result: PassResult) -> None:
        """Pods that were bound while their partition was being withdrawn: the kubelet refuses them permanently."""
        refused = [pod for pod in result.observation.pods.pods if pod.refused]
        for pod in refused:
            # The kubelet writes startTime with its refusal; an earlier agent reported what is older than this one.
            reported_before = bool(pod.began) and pod.began < self._started
            if pod.uid not in self._refused_uids and not reported_before:
                self.metrics.refused_pods.inc()
                message = (
                    "The pod was bound to a GPU partition that this node no longer had, or that was unhealthy. A "
                    "controller such as a Deployment replaces it by itself; a bare pod, or a Job at its backoffLimit, "
                    "must be created again."
                )
                self.emit(_about_pod(pod), "Warning", EventReason.PARTITION_GONE, message)
        self._refused_uids = frozenset(pod.uid for pod in refused)


def _without_pids(status: Mapping[str, Any]) -> Any:
    return json.loads(_PID.sub("process", json.dumps(status)))


def _fields(outcome: GpuOutcome, seconds: float | None) -> dict[str, Any]:
    took = {} if seconds is None else {"seconds": seconds}
    return fields(gpu=outcome.index, state=str(outcome.state), reason=str(outcome.reason), **took)


def _about(plan: ObservedPlan) -> ObjectReference:
    name = plan.content.metadata.name if plan.content is not None else ""
    return ObjectReference(api_version=names.API_VERSION, kind=names.KIND, name=name, uid=plan.uid)


def _about_pod(pod: NodePod) -> ObjectReference:
    return ObjectReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, namespace=pod.namespace)


def _event_text(outcome: GpuOutcome, status: Mapping[str, Any], generation: int) -> str:
    """With what this generation of the plan created and destroyed on the GPU, once it matches."""
    if outcome.message and outcome.state is not GpuState.READY:
        return f"GPU {outcome.index}: {outcome.message}"
    change = next((gpu.get("lastChange") for gpu in status["gpus"] if gpu["index"] == outcome.index), None)
    done = in_words(LastChange.read(change), generation) if change else ""
    return f"GPU {outcome.index} matches the plan{done}."
