"""Measures the way of each placed pod from pending to running, split into phases that add up to the whole.

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
class _Way:
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


class PodWays:
    """Call `planned` after each pass, `follow` in each turn."""

    def __init__(self, environment: Environment) -> None:
        self._state, self._metrics, self._clock = environment.state, environment.metrics, environment.clock
        self._began: float | None = None
        self._ways: dict[str, _Way] = {}

    def begin(self) -> None:
        """The watches are synced: what comes from now on is seen when it comes. Repeated calls change nothing."""
        if self._began is None:
            self._began = self._clock()

    def planned(self, result: PlanningResult, times: PassTimes) -> None:
        """What a pass decided, less what could not be written."""
        since = self._state.demanded_since()
        for placed in result.placed:
            way = self._way(placed.uid, placed.key, since)
            if way is not None and (way.placed is None or way.placed.node != placed.node):
                if way.phase not in (PodPhase.WINDOW, PodPhase.UNPLACED):
                    way.enter(PodPhase.UNPLACED, way.at)  # its former place is lost, and so is the time there
                _begin(way, placed, times)
        for missed in result.unplaced:
            way = self._way(missed.uid, missed.key, since)
            if way is not None and way.phase is not PodPhase.UNPLACED:
                way.placed = None
                way.enter(PodPhase.UNPLACED, max(times.began, way.at))

    def follow(self) -> None:
        """Note what placed pods have reached."""
        if not self._ways:
            return
        now, views = self._clock(), self._state.plan_views()
        for uid, way in list(self._ways.items()):
            pod = self._state.pod(way.key)
            if pod is None or pod.uid != uid:
                del self._ways[uid]
            elif way.placed is not None:
                self._follow(way, way.placed, pod, views.get(way.placed.node), now)
                if way.phase is PodPhase.START and pod.phase == "Running":
                    self._arrived(way, way.placed, now)
                    del self._ways[uid]
            elif pod.node:
                del self._ways[uid]  # bound elsewhere, without a plan of ours

    def _way(self, uid: str, key: PodKey, since: Mapping[str, float]) -> _Way | None:
        way = self._ways.get(uid)
        if way is None and uid in since and self._began is not None and since[uid] > self._began:
            way = self._ways[uid] = _Way(key=key, at=since[uid])
        return way

    def _follow(self, way: _Way, placed: Placed, pod: PodView, view: PlanView | None, now: float) -> None:
        if pod.node:
            if way.phase is not PodPhase.START:
                way.enter(PodPhase.START, now)
                way.bound = way.total
            return
        if view is None:
            return
        gpus = _gpus(placed, view)
        if way.phase is PodPhase.ACTUATE and not any(gpu.state == GpuState.CHANGING or _unread(gpu) for gpu in gpus):
            way.enter(PodPhase.ADVERTISE, now)
        if way.phase is PodPhase.ADVERTISE and all(gpu.settled for gpu in gpus):
            way.enter(PodPhase.BIND, now)

    def _arrived(self, way: _Way, placed: Placed, now: float) -> None:
        way.enter(PodPhase.START, now)
        metrics, supply = self._metrics.pods, placed.supply.value
        for phase, seconds in way.seconds.items():
            metrics.phase_seconds.labels(phase=phase.value).observe(seconds)
        metrics.wait_seconds.labels(supply=supply).observe(way.total)
        bound = way.total if way.bound is None else way.bound
        delivery = bound - way.seconds.get(PodPhase.UNPLACED, 0.0)
        metrics.delivery_seconds.labels(supply=supply).observe(delivery)


def _begin(way: _Way, placed: Placed, times: PassTimes) -> None:
    """From this pass on the pod has a place."""
    way.placed = placed
    way.enter(PodPhase.PLANNING, max(times.began, way.at))
    if placed.supply is Supply.EXISTING:
        way.enter(PodPhase.BIND, times.planned)
    elif placed.supply is Supply.UNDER_WAY:
        way.enter(PodPhase.ACTUATE, times.planned)
    else:
        way.enter(PodPhase.WRITE, times.planned)
        way.enter(PodPhase.ACTUATE, times.written)


def _gpus(placed: Placed, view: PlanView) -> Sequence[GpuView]:
    """Those that the pod waits for; of a pod placed on what is under way they are not known: all that change."""
    if placed.gpus:
        return [gpu for gpu in view.gpus if gpu.index in placed.gpus]
    return [gpu for gpu in view.gpus if gpu.under_way]


def _unread(gpu: GpuView) -> bool:
    """The agent has not read the new item yet: what it reports is about the one before."""
    return gpu.state in (GpuState.READY, GpuState.UNMANAGED) and not gpu.settled
