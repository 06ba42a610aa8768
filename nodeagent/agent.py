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

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from crds.v1alpha1.names import Reason
from nodeagent.advertise.advertiser import Advertiser, capacities, counts, render, understood, withdraw_all
from nodeagent.advertise.confirm import Confirmation, Confirmer, Readings, Stage
from nodeagent.advertise.faults import Faults
from nodeagent.advertise.taint import NodeGuard
from nodeagent.ages import Ages
from nodeagent.desired.items import DesiredItems, desired_items
from nodeagent.desired.target import no_such_gpu
from nodeagent.handover.config import PluginConfig
from nodeagent.hardware.partitions import Partition, existing
from nodeagent.observation import Observation, Observer
from nodeagent.observed.orphans import OrphanBook, Orphans
from nodeagent.observed.usage import Verdict
from nodeagent.report.conditions import UNDER_WAY
from nodeagent.report.debounce import DebouncedVerdicts
from nodeagent.report.outcome import GpuOutcome, PassResult, Situation, absent_gpu, gpu_outcome
from nodeagent.report.reporter import Reporter
from nodeagent.steps.actuator import Actuated, Actuator
from nodeagent.steps.changes import GpuChange, gpu_change

SOON_SECONDS = 0.1
"""The kubelet registers a new list within some tens of milliseconds."""
PATIENCE_SECONDS = 3.0
LATER_SECONDS = 1.0
ACTING_SECONDS = 20.0
"""No further step on hardware begins after this time in one pass: the heartbeat and the status need passes that end."""
DOUBT_SECONDS = 2.0
"""A new pod is in watch and List within this time."""


@dataclass(slots=True, kw_only=True)
class Agent:
    """Keeps nothing between passes that it acts on: only how long it has waited, and what the status reported."""

    observer: Observer
    actuator: Actuator
    advertiser: Advertiser
    guard: NodeGuard
    confirmer: Confirmer
    reporter: Reporter
    clock: Callable[[], float]
    resync_seconds: float
    stopping: Callable[[], bool] = lambda: False
    _ages: Ages = field(init=False)
    _faults: Faults = field(init=False)
    _orphan_book: OrphanBook = field(default_factory=OrphanBook, init=False)
    _debounced: DebouncedVerdicts = field(init=False)

    def __post_init__(self) -> None:
        self._ages = Ages(self.clock)
        self._faults = Faults(self.clock)
        self._debounced = DebouncedVerdicts(clock=self.clock, patience_seconds=DOUBT_SECONDS)

    def reconcile(self) -> float:
        """One pass. Returns the seconds after which another is due even if nothing happens."""
        observation = self.observer.observe()
        self.reporter.load_confirmed(observation.plan)
        desired = desired_items(observation.plan, observation.gpus)
        changes = self._changes(desired, observation)
        # With another plugin on the node a withdrawal proves nothing: its pods may hold the devices behind our ids.
        acting = () if self._yields(observation) else changes.values()
        until = self.clock() + ACTING_SECONDS
        actuated = {change.gpu.uuid: self._actuate(change, desired, until=until) for change in acting}
        if any(done.acted for done in actuated.values()):
            observation = self.observer.observe_hardware(observation)
            desired = desired_items(observation.plan, observation.gpus)
            changes = self._changes(desired, observation)
        # Before the config is written again: it still names the GPU of a device that is gone.
        orphans = self._orphan_book.by_gpu(observation.usage.held, observation.gpus, self.advertiser.config.devices)
        pending = self._advertise(observation, changes)
        confirmation, readings, unwritten = self._confirm(observation)
        outcomes = self._outcomes(
            observation,
            desired,
            changes,
            actuated=actuated,
            confirmation=confirmation,
            pending=pending,
            orphans=orphans,
        )
        unconfirmed = (stage.message for stage in confirmation.stages.values())
        result = PassResult(
            observation=observation,
            desired=desired,
            outcomes=outcomes,
            actuated=actuated,
            confirmation=confirmation,
            config=readings.config,
            advertise_message=next(filter(None, (pending, unwritten, *unconfirmed)), ""),
        )
        return self._due(result, self.reporter.report(result), actuated)

    def _changes(self, desired: DesiredItems, observation: Observation) -> dict[int, GpuChange]:
        """By index of the GPU."""
        found = {}
        for item in desired.items:
            if item.gpu is not None:
                judged = observation.judge(item.gpu, self.advertiser.config)
                if desired.paused:
                    # Not even what this agent left half-made is touched.
                    judged = replace(judged, unfinished=frozenset())
                in_use = [p.placed for p in judged.partitions if p.placed and not judged.verdict(p).free]
                found[item.index] = gpu_change(
                    desired.target(item, in_use, mig_manager=observation.pods.mig_manager), judged
                )
        return found

    def _actuate(self, change: GpuChange, desired: DesiredItems, *, until: float) -> Actuated:
        def may_go_on() -> bool:
            newest = self.observer.plan.get()
            current = (newest.spec_version if newest else ("", 0)) == desired.spec_version
            return current and not self.stopping() and self.clock() < until

        return self.actuator.run(change, spec_version=desired.spec_version, may_go_on=may_go_on)

    def _advertise(self, observation: Observation, changes: dict[int, GpuChange]) -> str:
        """Write the plugin's config; returns why it could not be written yet."""
        if observation.driver_problem is not None:
            return f"the driver does not answer: {observation.driver_problem}"
        advertiser, readings = self.advertiser, observation.readings
        broken = self._faults.broken(observation.gpus)
        config = render(changes.values(), advertiser.config, broken=broken, boot_id=advertiser.boot_id)
        config = understood(config, readings.loaded)
        yields = self._yields(observation)
        if yields:
            config = withdraw_all(config)
        if config != advertiser.config and not yields:
            why = self.guard.before_push(self.observer.node.get(), counts(config), self._ours(readings, config))
            if why:
                return why
        overdue, again = self.confirmer.overdue(readings), self.confirmer.reminds(readings)
        try:
            written = advertiser.advertise(config, in_force=readings.in_force, overdue=overdue, again=again)
        except OSError as error:
            return f"the device plugin's config cannot be written: {error}"
        if not written:
            return "the device plugin has not loaded the config before this one yet"
        return yields

    def _yields(self, observation: Observation) -> str:
        """Why our plugin advertises nothing, and nothing is changed, while another one serves this node."""
        if observation.rival:
            return observation.rival
        if contested := ", ".join(self.confirmer.contested()):
            return (
                f"another device plugin advertises {contested} too, so gpuplan advertises nothing: stop it on this node"
            )
        return ""

    def _confirm(self, observation: Observation) -> tuple[Confirmation, Readings, str]:
        """Also returns what was compared, and why the Node could not be written."""
        advertiser, before = self.advertiser, observation.readings
        readings = replace(
            before,
            config=advertiser.config,
            in_force=advertiser.in_force(before.loaded),
            node=self.observer.node.get(),
        )
        confirmation = self.confirmer.confirm(readings, [gpu.uuid for gpu in observation.gpus])
        config = advertiser.config
        if self._yields(observation):
            # The other plugin shows our ids for as long as it runs, and the taint would stay as long.
            unwritten = self.guard.lift(readings.node)
        else:
            unwritten = self.guard.after_push(
                readings.node,
                counts(config),
                capacities(config),
                self._ours(readings, config),
                all_allocatable=confirmation.all_allocatable,
                all_withdrawn=confirmation.all_withdrawn,
            )
        return confirmation, readings, unwritten

    def _ours(self, readings: Readings, config: PluginConfig) -> set[str]:
        """Resources that our plugin advertises, or did: the kubelet never forgets one."""
        devices = [*readings.config.devices, *config.devices]
        registered = readings.loaded.registered if readings.loaded else {}
        # What another plugin advertises too is counted by it: our taint would stay for as long as it runs.
        return {device.resource for device in devices}.union(registered).difference(self.confirmer.contested())

    def _outcomes(
        self,
        observation: Observation,
        desired: DesiredItems,
        changes: dict[int, GpuChange],
        *,
        actuated: dict[str, Actuated],
        confirmation: Confirmation,
        pending: str,
        orphans: Mapping[str, Orphans],
    ) -> tuple[GpuOutcome, ...]:
        found = []
        for item in desired.items:
            if item.gpu is None:
                # With a driver that does not answer the number of GPUs is unknown.
                if observation.driver_problem is None:
                    refused = no_such_gpu(item.index, len(observation.gpus))
                    found.append(absent_gpu(item.index, item.item_hash, refused))
                continue
            change = changes[item.index]
            found.append(
                gpu_outcome(
                    Situation(
                        change=change,
                        actuated=actuated.get(item.gpu.uuid, Actuated()),
                        stage=self._stage(change, confirmation, pending, yields=self._yields(observation)),
                        item_hash=item.item_hash,
                        confirmed_hash=self.reporter.confirmed_hash(item.gpu.uuid),
                        paused=desired.paused,
                        schedulable=confirmation.schedulable,
                        verdicts=self._verdicts(change, observation),
                        withdrawn=frozenset(self.advertiser.config.withdrawn),
                        unhealthy=frozenset(self.advertiser.config.unhealthy),
                        orphans=orphans.get(item.gpu.uuid, ()),
                    )
                )
            )
        return tuple(found)

    def _stage(self, change: GpuChange, confirmation: Confirmation, pending: str, *, yields: str) -> Stage:
        if yields:
            return Stage(schedulable=False, reason=Reason.FOREIGN_OWNER, message=yields, failed=True)
        desired = {p.device for p in change.advertise}
        advertised = {device for device in self.advertiser.config.advertised() if device.gpu == change.gpu.uuid}
        if desired != advertised:
            return Stage(schedulable=False, reason=Reason.ADVERTISING, message=pending)
        return confirmation.stages[change.gpu.uuid]

    def _verdicts(self, change: GpuChange, observation: Observation) -> tuple[tuple[Partition, Verdict], ...]:
        """Everything on a GPU, including what this pass has just begun to advertise."""
        here = existing(change.gpu, self.advertiser.config, observation.usage.held)
        by_id = {partition.id: partition for partition in [*here, *change.advertise]}
        ordered = sorted(by_id.values(), key=lambda partition: partition.rank)
        return tuple((p, self._debounced.of(p.id, observation.verdict(p, change.gpu))) for p in ordered)

    def _due(self, result: PassResult, report_seconds: float | None, acted_on: Collection[str]) -> float:
        """Watches wake the agent for most things; the kubelet's list and the clock send no event."""
        seconds = [self.resync_seconds]
        # Of the GPUs that this pass would have changed: the pause of one that is left alone never ends by itself.
        retry_seconds = self.actuator.seconds_to_retry(acted_on)
        seconds += [due for due in (report_seconds, retry_seconds) if due is not None]
        if (young := result.observation.believed_in_seconds) is not None and young > 0:
            seconds.append(young)
        if any(done.interrupted for done in result.actuated.values()):
            seconds.append(0.0)
        if not result.confirmation.all_allocatable or result.confirmation.foreign:
            waited = self._ages.seconds("allocatable", result.config.hash)
            seconds.append(SOON_SECONDS if waited < PATIENCE_SECONDS else LATER_SECONDS)
        if (
            self._debounced.waits
            or self._faults.waits
            or any(outcome.state in UNDER_WAY for outcome in result.outcomes)
        ):
            seconds.append(LATER_SECONDS)
        self._debounced.end_pass()
        self._ages.end_pass()
        return max(min(seconds), 0.0)
