"""One pass of the node agent: observe, withdraw or destroy and create, advertise, confirm, report.

    spec ────────────────────► desired items ─┐
    driver, kubelet, plugin ──► observation ──┴► changes ─► actuator ─► driver       (journal first)
                                                    └─────► advertise ─► config.json ─► device plugin ─► kubelet
    loaded.json, GetAllocatable, Node ────────────────────► confirm ─► outcomes ─► report ─► status

Level-triggered, and every wait is bounded (`hardware.driver_thread`, `kube.budget`): a pass goes as far as it can, and
returns after how many seconds the next one is due. What must be destroyed is first withdrawn; only a later pass, which
observes it gone and free, destroys it. Each pass works on one version of the spec, computed again from what is
observed, so it does not matter where the last one was interrupted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from crds.v1alpha1.names import GpuState
from kube.logs import bind
from nodeagent.advertise.advertiser import Advertiser
from nodeagent.advertise.free_marks import FreeMarks
from nodeagent.desired.items import DesiredItems
from nodeagent.durations import Durations
from nodeagent.hardware.driver import DriverError
from nodeagent.observation import Observation, Observer
from nodeagent.outcome.driver_clients import DriverClients
from nodeagent.outcome.outcomes import Outcomes
from nodeagent.outcome.pass_result import PassResult, PassWork
from nodeagent.report.conditions import UNDER_WAY
from nodeagent.report.reporter import Reporter
from nodeagent.steps.actuator import Actuator, HeldOpenError
from nodeagent.steps.confirmations import Confirmations

SOON_SECONDS = 0.1
"""The kubelet registers a new list within some tens of milliseconds."""
PATIENCE_SECONDS = 3.0
LATER_SECONDS, LONGEST_SECONDS = 1.0, 10.0
"""Between passes in a state that lasts: at first, and once nothing has changed for a while."""
SETTLED_SECONDS, KEPT_SECONDS = 10.0, 60.0
"""After so long without any change the reading of a GPU is used for as long as a fault may take to be noticed."""
WAITING_KEPT_SECONDS = 5.0
"""The same while something waits, for a process to end, say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PassEnd:
    """What the loop around the passes must know of one."""

    due_seconds: float
    """After which another is due even if nothing happens."""
    driver_problem: DriverError | None
    """The driver as a whole does not answer."""
    projections: tuple[Path, ...]
    """Folders of a pod in which what is waited for will show; an event there makes a pass due."""


class Backend(Protocol):
    """What is done for the device plugin that serves the node: gpuplan's own, or NVIDIA's."""

    def work(self, observation: Observation, desired: DesiredItems, confirmed: Mapping[str, str]) -> PassWork:
        """As far as it goes now; `confirmed`: hash of the item that was confirmed before, by GPU UUID."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """The stages of a pass. What they remember is only how long something has been so, and what was reported."""

    observer: Observer
    actuator: Actuator
    advertiser: Advertiser
    free_marks: FreeMarks
    confirmations: Confirmations
    outcomes: Outcomes
    reporter: Reporter
    pacing: "Pacing"
    clients: DriverClients
    desired: Callable[[Observation], DesiredItems]
    own: Backend
    nvidia: Backend

    def reconcile(self) -> PassEnd:
        """One pass."""
        self.advertiser.begin_pass()
        observation = self.observer.observe()
        self.free_marks.note(observation, self.observer.observe_hardware)
        bind(**({"generation": observation.plan.generation} if observation.plan is not None else {}))
        confirmed = self.confirmations.load(observation.plan)
        desired = self.desired(observation)
        backend = self.nvidia if desired.by_nvidia else self.own
        work = self._with_clients(backend.work(observation, desired, confirmed))
        result = self.outcomes.of(work)
        self._confirm(result)
        report_seconds = self.reporter.report(result) or (0.0 if observation.reopens else None)
        due_seconds = self.pacing.due_seconds(result, report_seconds, self.actuator.seconds_to_retry(work.actuated))
        hardware = self.observer.hardware
        hardware.keeps_from, hardware.keeps_seconds = self.pacing.keeps(work)
        return PassEnd(
            due_seconds=due_seconds,
            driver_problem=observation.driver_problem,
            projections=work.advertised.projections or (),
        )

    def _with_clients(self, work: PassWork) -> PassWork:
        """Who has the driver open, where a person has to know it."""
        errors = {uuid: done.error for uuid, done in work.actuated.items()}
        held_open = [c.gpu for c in work.changes.values() if isinstance(errors.get(c.gpu.uuid), HeldOpenError)]
        minors: list[int | None] = [gpu.minor for gpu in held_open if gpu.minor is not None]
        minors += [None] if work.observation.driver_closed else []
        return replace(work, clients={minor: self.clients.of(minor, work.observation.pods.pods) for minor in minors})

    def _confirm(self, result: PassResult) -> None:
        for outcome in result.outcomes:
            if outcome.gpu is None:
                continue
            # On the way to another item the agent itself changes what was confirmed.
            leaves = outcome.item_hash != outcome.plan_hash and result.work.changed(outcome.index)
            if leaves or not outcome.managed:
                self.confirmations.forget(outcome.gpu.uuid)
            elif outcome.state is GpuState.READY:
                self.confirmations.confirm(outcome.gpu.uuid, outcome.item_hash)


class Pacing:
    """When the next pass is due. Watches wake the agent for most things; kubelet lists and the clock send no event.

    inotify also wakes the agent for a new key of a ConfigMap; without inotify the resync finds it.
    """

    def __init__(self, clock: Callable[[], float], *, resync_seconds: float) -> None:
        self._clock, self._durations = clock, Durations(clock)
        self._resync_seconds = resync_seconds
        self._found: object = None
        self._found_at = 0.0

    def due_seconds(self, result: PassResult, *waits: float | None) -> float:
        """`waits` are the seconds after which a stage has to be called again; None where it has not. Once a pass."""
        work = result.work
        seconds = [self._resync_seconds, *(due for due in waits if due is not None)]
        if (young := result.observation.witnessed.believed_in_seconds) is not None and young > 0:
            seconds.append(young)
        dues = (work.advertised.faults.due_seconds, work.advertised.due_seconds)
        seconds += [due for due in dues if due is not None]
        if any(done.interrupted for done in work.actuated.values()):
            seconds.append(0.0)
        confirmation, watched = work.advertised.confirmation, work.advertised.projections is not None
        if not watched and (not confirmation.all_allocatable or work.advertised.rival):
            waited = self._durations.seconds("allocatable", work.advertised.config.hash)
            seconds.append(SOON_SECONDS if waited < PATIENCE_SECONDS else _pause_seconds(waited))
        under_way = any(outcome.state in UNDER_WAY for outcome in result.outcomes)
        unchanged_seconds = self._unchanged_seconds(result)
        if (under_way or not result.release.settled) and not watched:
            seconds.append(_pause_seconds(unchanged_seconds))
        if result.doubts_held_back or result.observation.usage.twice or work.advertised.delivery.waits:
            seconds.append(LATER_SECONDS)
        self._durations.end_pass()
        return max(min(seconds), 0.0)

    def keeps(self, work: PassWork) -> tuple[float, float]:
        """From when on, and for how long, readings may be used again. Call it after `due_seconds`."""
        changes, config = work.changes.values(), work.advertised.config
        if work.desired.by_nvidia or any(change.moves(config) for change in changes):
            return 0.0, 0.0
        settled = all(change.converged for change in changes)
        return self._found_at + SETTLED_SECONDS, KEPT_SECONDS if settled else WAITING_KEPT_SECONDS

    def _unchanged_seconds(self, result: PassResult) -> float:
        """For how long a pass has found the same GPUs, and pods that concern them."""
        pods = tuple(pod for pod in result.observation.pods.pods if pod.concerns_gpus)
        # Without the messages, in which the number of a process may change in each pass, nor the doubt about all
        # partitions while some pod, of whatever kind, is in the watch and not yet in the kubelet's list.
        parts = [[(each.partition, each.pod, each.unhealthy) for each in o.partitions] for o in result.outcomes]
        gpus = tuple((o.index, o.state, o.reason, o.item_hash, o.missing) for o in result.outcomes)
        found = (gpus, parts, result.release.reason, replace(result.observation.usage, blind=""), pods)
        if found != self._found:
            self._found, self._found_at = found, self._clock()
        return self._clock() - self._found_at


def _pause_seconds(waited: float) -> float:
    return min(max(LATER_SECONDS, waited / 5), LONGEST_SECONDS)
