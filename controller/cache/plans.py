"""All plans, with what a reading alone cannot show: an agent that is alive, a GPU that is settled or under way.

Takes readings, heartbeats and the uid of each Node and returns PlanViews and whether a change is worth a pass. The
answer to our own write is known at once, and an older event that comes after it changes nothing. Owned by
`controller.cache.state`, under whose lock every method runs.
"""

import math
from dataclasses import replace

from controller.api.plans import GpuReading, PlanReading
from controller.cache.heartbeats import Heartbeats
from controller.cache.progress import Outlook, Progress
from controller.cache.triggers import capacity_changed
from controller.model.views import GpuView, PlanView
from crds.v1alpha1.names import Reason
from kube.latest import LatestVersion


class PlanStore:
    """All plans of the cluster, by name."""

    def __init__(self, *, agent_silent_seconds: float, under_way_seconds: float) -> None:
        self.heartbeats = Heartbeats(silent_seconds=agent_silent_seconds)
        self.readings: dict[str, PlanReading] = {}
        self._latest: dict[str, LatestVersion[PlanReading]] = {}
        self.views: dict[str, PlanView] = {}
        self._progress = Progress(under_way_seconds=under_way_seconds)
        self._holds_until: dict[str, float] = {}
        self._expected: dict[str, str] = {}
        self._gone_at: dict[str, float] = {}
        self._refused: dict[str, tuple[str, float]] = {}

    def observe(self, observed: PlanReading, *, node_uid: str, now: float) -> bool:
        """Take one plan from the watch; True: planning may come to another result."""
        self._latest_of(observed.name).on_event(observed.name, None, observed)
        return self._take_latest(observed.name, node_uid=node_uid, now=now)

    def accept(self, answer: PlanReading, *, node_uid: str, now: float) -> bool:
        """Take one plan from an answer to our own request, as `observe` does from the watch."""
        self._latest_of(answer.name).accept(answer)
        return self._take_latest(answer.name, node_uid=node_uid, now=now)

    def _latest_of(self, name: str) -> LatestVersion[PlanReading]:
        return self._latest.setdefault(name, LatestVersion())

    def _take_latest(self, name: str, *, node_uid: str, now: float) -> bool:
        old, new = self.readings.get(name), self._latest[name].get()
        if new is None or new is old:
            return False
        if old is not None and old.uid != new.uid:
            self._forget(old)
        self.readings[name] = new
        self._gone_at.pop(name, None)
        self.heartbeats.expect(name, now)
        return self.refresh(name, node_uid=node_uid, now=now, ours=self._our_indexes(old, new))

    def gone(self, name: str, *, now: float) -> bool:
        """The plan was deleted."""
        self._gone_at[name] = now
        self._expected.pop(name, None)
        self.heartbeats.forget(name)
        return self.hide(name)

    def hide(self, name: str) -> bool:
        """The plan is there, but cannot be read."""
        if name in self._latest:
            self._latest[name].on_event(name, None, None)
        old = self.readings.pop(name, None)
        if old is not None:
            self._forget(old)
        return self.views.pop(name, None) is not None

    def refresh(self, name: str, *, node_uid: str, now: float, ours: frozenset[int] = frozenset()) -> bool:
        """Judge again what depends on time, Node and agent; True: planning may come to another result."""
        reading, old = self.readings[name], self.views.get(name)
        silent = reading.alive is not None and reading.alive.reason in (Reason.AGENT_SILENT, Reason.NODE_DISABLED)
        alive = self.heartbeats.alive(name, now, known_silent=silent)
        # A status that an agent wrote about an earlier Node of this name does not describe this one.
        current = alive and bool(node_uid) and reading.node_uid == node_uid
        outlooks = [self._outlook(reading, gpu, now) for gpu in reading.gpus]
        refusal, refused_until = self._refusal(name, now)
        self._holds_until[name] = min(
            [self.heartbeats.holds_until(name, now), refused_until, *(outlook.holds_until for outlook in outlooks)]
        )
        view = PlanView(
            name=name,
            uid=reading.uid,
            generation=reading.generation,
            mode=reading.mode,
            paused=reading.paused,
            node_uid=reading.node_uid,
            relabels=reading.relabels,
            by_nvidia=reading.by_nvidia,
            agent_alive=alive,
            write_refused=refusal,
            planned=reading.planned,
            gpus=tuple(
                _gpu_view(gpu, outlook, current=current, paused=reading.paused)
                for gpu, outlook in zip(reading.gpus, outlooks, strict=True)
            ),
        )
        self.views[name] = view
        if old is None and not view.gpus:
            return False  # a plan without a status has no partitions yet
        return capacity_changed(old, view, ours=ours)

    def forget_gone(self, now: float, *, after_seconds: float) -> None:
        """Nodes come and go under ever new names: what was deleted that long ago needs no guard any more."""
        for name in [name for name, at in self._gone_at.items() if now - at >= after_seconds]:
            del self._gone_at[name]
            self._latest.pop(name, None)
            self.heartbeats.forget(name)  # a last beat may come after the deletion

    def overdue(self, now: float) -> list[str]:
        """Plans of which something was true for a time only, and that time is over."""
        return sorted(name for name, until in self._holds_until.items() if until <= now)

    def expect(self, name: str, planned_json: str) -> None:
        """We are about to write this as `planned`: seeing it is no news."""
        self._expected[name] = planned_json

    def refused(self, name: str, message: str, *, until: float) -> None:
        """The API server refused our write; it is not tried again before `until`. Call `refresh` afterwards."""
        self._refused[name] = (message, until)

    @property
    def any_refused(self) -> bool:
        """A write was refused and is to be tried again."""
        return bool(self._refused)

    def gone_for(self, name: str, now: float) -> float:
        """Seconds since the plan was seen to vanish; infinite if it was not there in our time."""
        return now - self._gone_at.get(name, -math.inf)

    def _refusal(self, name: str, now: float) -> tuple[str, float]:
        """The refusal that still counts, and until when."""
        message, until = self._refused.get(name, ("", math.inf))
        if now < until:
            return message, until
        del self._refused[name]
        return "", math.inf

    def _outlook(self, reading: PlanReading, gpu: GpuReading, now: float) -> Outlook:
        return self._progress.outlook(
            reading.uid, gpu, generation=reading.generation, observed_generation=reading.observed_generation, now=now
        )

    def _our_indexes(self, old: PlanReading | None, new: PlanReading) -> frozenset[int]:
        """Indexes that our own write has just changed."""
        if old is None or old.planned_json == new.planned_json or self._expected.get(new.name) != new.planned_json:
            return frozenset()
        before, after = old.planned_items, new.planned_items
        return frozenset(index for index in {*before, *after} if before.get(index) != after.get(index))

    def _forget(self, old: PlanReading) -> None:
        self._progress.forget(old.uid)
        self._refused.pop(old.name, None)
        self._holds_until.pop(old.name, None)


def _gpu_view(gpu: GpuReading, outlook: Outlook, *, current: bool, paused: bool) -> GpuView:
    return replace(
        gpu.view,
        settled=outlook.settled and current,
        under_way=outlook.under_way and current and not paused,
        backing_off=outlook.backing_off,
    )
