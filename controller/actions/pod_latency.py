"""Measures the timeline of each placed pod from pending to running, split into phases that add up to the whole.

Takes the result of each pass with its moments, and follows placed pods in the state: their GPUs as the node's status
shows them, their binding, their start. Every moment belongs to exactly one phase, so that the phases of a pod add up to
its wait whatever was missed in between. Pods that were pending before this process, and those that a scheduler binds
without a plan, are not measured. Decides nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from controller.actions.environment import Environment
from controller.actions.metrics import PodPhase
from controller.model.results import Placed, PlanningResult, Supply
from controller.model.views import GpuView, PlanView, PodKey, PodView
from crds.v1alpha1.names import GpuState


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes:
    """The moments of one pass, on the controller's clock."""

    began: float
    planned: float
    written: float


@dataclass(slots=True, kw_only=True)
class _PodTimeline:
    key: PodKey
    at: float
    """Until then its time is in `seconds`."""
    seconds: dict[PodPhase, float] = field(default_factory=dict)
    phase: PodPhase = PodPhase.WINDOW
    placed: Placed | None = None
    bound: float | None = None
    """Its time until it was bound."""

    def enter(self, phase: PodPhase, now: float) -> None:
        """The present phase ends now."""
        self.seconds[self.phase] = self.seconds.get(self.phase, 0.0) + now - self.at
        self.phase, self.at = phase, now

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


class PodLatency:
    """Call `planned` after each pass, `follow` in each turn."""

    def __init__(self, environment: Environment) -> None:
        self._cluster, self._metrics, self._clock = environment.state.cluster, environment.metrics, environment.clock
        self._began: float | None = None
        self._timelines: dict[str, _PodTimeline] = {}

    def begin(self) -> None:
        """The watches are synced: what comes from now on is seen when it comes. Repeated calls change nothing."""
        if self._began is None:
            self._began = self._clock()

    def planned(self, result: PlanningResult, times: PassTimes) -> None:
        """What a pass decided, less what could not be written."""
        since = self._cluster.demanded_since()
        for placed in result.placed:
            timeline = self._timeline(placed.uid, placed.key, since)
            if timeline is not None and (timeline.placed is None or timeline.placed.node != placed.node):
                if timeline.phase not in (PodPhase.WINDOW, PodPhase.UNPLACED):
                    timeline.enter(PodPhase.UNPLACED, timeline.at)  # its former place is lost, and so is the time there
                _begin(timeline, placed, times)
        for missed in result.unplaced:
            timeline = self._timeline(missed.uid, missed.key, since)
            if timeline is not None and timeline.phase is not PodPhase.UNPLACED:
                timeline.placed = None
                timeline.enter(PodPhase.UNPLACED, max(times.began, timeline.at))

    def follow(self) -> None:
        """Note what placed pods have reached."""
        if not self._timelines:
            return
        now, views = self._clock(), self._cluster.plan_views()
        for uid, timeline in list(self._timelines.items()):
            pod = self._cluster.pod(timeline.key)
            if pod is None or pod.uid != uid:
                del self._timelines[uid]
            elif timeline.placed is not None:
                self._follow(timeline, timeline.placed, pod, views.get(timeline.placed.node), now)
                if timeline.phase is PodPhase.START and pod.phase == "Running":
                    self._arrived(timeline, timeline.placed, now)
                    del self._timelines[uid]
            elif pod.node:
                del self._timelines[uid]  # bound elsewhere, without a plan of ours

    def _timeline(self, uid: str, key: PodKey, since: Mapping[str, float]) -> _PodTimeline | None:
        timeline = self._timelines.get(uid)
        if timeline is None and uid in since and self._began is not None and since[uid] > self._began:
            timeline = self._timelines[uid] = _PodTimeline(key=key, at=since[uid])
        return timeline

    def _follow(self, timeline: _PodTimeline, placed: Placed, pod: PodView, view: PlanView | None, now: float) -> None:
        if pod.node:
            if timeline.phase is not PodPhase.START:
                timeline.enter(PodPhase.START, now)
                timeline.bound = timeline.total
            return
        if view is None:
            return
        gpus = _gpus(placed, view)
        changing = any(gpu.state == GpuState.CHANGING or _unread(gpu) for gpu in gpus)
        if timeline.phase is PodPhase.ACTUATE and not changing:
            timeline.enter(PodPhase.ADVERTISE, now)
        if timeline.phase is PodPhase.ADVERTISE and all(gpu.settled for gpu in gpus):
            timeline.enter(PodPhase.BIND, now)

    def _arrived(self, timeline: _PodTimeline, placed: Placed, now: float) -> None:
        timeline.enter(PodPhase.START, now)
        metrics, supply = self._metrics.pods, placed.supply.value
        for phase, seconds in timeline.seconds.items():
            metrics.phase_seconds.labels(phase=phase.value).observe(seconds)
        metrics.wait_seconds.labels(supply=supply).observe(timeline.total)
        bound = timeline.total if timeline.bound is None else timeline.bound
        delivery = bound - timeline.seconds.get(PodPhase.UNPLACED, 0.0)
        metrics.delivery_seconds.labels(supply=supply).observe(delivery)


def _begin(timeline: _PodTimeline, placed: Placed, times: PassTimes) -> None:
    """From this pass on the pod has a place."""
    timeline.placed = placed
    timeline.enter(PodPhase.PLANNING, max(times.began, timeline.at))
    if placed.supply is Supply.EXISTING:
        timeline.enter(PodPhase.BIND, times.planned)
    elif placed.supply is Supply.UNDER_WAY:
        timeline.enter(PodPhase.ACTUATE, times.planned)
    else:
        timeline.enter(PodPhase.WRITE, times.planned)
        timeline.enter(PodPhase.ACTUATE, times.written)


def _gpus(placed: Placed, view: PlanView) -> Sequence[GpuView]:
    """Those that the pod waits for; of a pod placed on what is under way they are not known: all that change."""
    if placed.gpus:
        return [gpu for gpu in view.gpus if gpu.index in placed.gpus]
    return [gpu for gpu in view.gpus if gpu.under_way]


def _unread(gpu: GpuView) -> bool:
    """The agent has not read the new item yet: what it reports is about the one before."""
    return gpu.state in (GpuState.READY, GpuState.UNMANAGED) and not gpu.settled
