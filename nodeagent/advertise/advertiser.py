"""Advertises what pods may get, and confirms how far it has come: the stage between a pass's changes and its report.

Takes an observation and the changes of all GPUs, writes the device plugin's config, guards the Node meanwhile, and
returns an `Advertised`. While another device plugin serves the node everything is withdrawn, because both advertise the
same GPUs, and so it is while the plan reports the node as handed back. Must never decide what is destroyed: a later
pass does, once it observes that the id is gone and unused.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from crds.v1alpha1.names import Reason
from kube.latest import LatestVersion
from nodeagent.advertise.config_file import (
    ConfigFile,
    capacities,
    counts,
    drain,
    more_unhealthy,
    occupy,
    render,
    withdraw_all,
    without,
)
from nodeagent.advertise.confirm import Confirmation, Confirmer, Stage
from nodeagent.advertise.counts_right import UNKNOWN, Answer
from nodeagent.advertise.delivery import ContainerDelivery, Delivery
from nodeagent.advertise.faults import UNKNOWN_GPUS, FaultBook, Faults, unsafe_ids
from nodeagent.advertise.taint import Lists, NodeGuard
from nodeagent.desired.items import drained, lists
from nodeagent.durations import Durations
from nodeagent.handover.config import DeviceKind, PluginConfig
from nodeagent.hardware.partitions import of_device
from nodeagent.observation import Observation, Readings
from nodeagent.observed.node import ObservedNode
from nodeagent.steps.changes import GpuChange
from nodeagent.steps.compute_modes import ComputeModes

TAINT_SECONDS = 60.0
"""After that a person must see why the Node takes no taint, or keeps it: a webhook or a policy refuses it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NvidiaPlugin:
    """NVIDIA's device plugin, where it is the backend, and how far it is with the config of the plan."""

    stage: Stage
    key: str
    """Of its config: with which the node may be labelled, that of the plan or the one that it has."""
    projections: tuple[Path, ...] | None = None
    """While nothing but a new key of its ConfigMap is waited for: the folders in which that will show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advertised:
    """What one pass advertises, and how far it has come."""

    config: PluginConfig
    """The one on disk."""
    confirmation: Confirmation
    rival: str = ""
    """Why our plugin advertises nothing: another one serves this node."""
    pending: str = ""
    """Why the config of this pass's changes is not on disk yet, or advertises nothing."""
    overdue: bool = False
    """It has waited for the Node's taint, or for the end of it, for so long that a person must act."""
    unwritten: str = ""
    """Why the Node could not be written."""
    tainted: str = ""
    """Why the Node has our taint."""
    delivery: Delivery = field(default_factory=Delivery)
    """How containers get the devices."""
    mode_problems: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By GPU UUID, why a client that does not use MPS is not kept off a GPU that is shared, or one that is not."""
    faults: Faults = field(default_factory=Faults)
    due_seconds: float | None = None
    """After which a list that waits for the Node's taint may be sent."""
    counts_right: Answer = UNKNOWN
    """Whether the Node's amounts are written."""
    nvidia_plugin: NvidiaPlugin | None = None
    """None where our own plugin serves the node."""

    @property
    def message(self) -> str:
        """Why not everything that is advertised is schedulable, where there is a reason."""
        stages = (stage.message for stage in self.confirmation.stages.values())
        return next(filter(None, (self.pending, self.unwritten, *stages)), "")

    @property
    def projections(self) -> tuple[Path, ...] | None:
        """None where anything else is waited for."""
        return self.nvidia_plugin.projections if self.nvidia_plugin is not None else None

    def stage(self, change: GpuChange) -> Stage:
        """How far the partitions of one GPU have come."""
        if self.rival:
            return Stage(reason=Reason.FOREIGN_OWNER, message=self.rival, failed=True)
        if refused := [why for p in change.advertise if (why := self.delivery.missing.get(p.id))]:
            return Stage(reason=Reason.CDI_UNAVAILABLE, message=refused[0], failed=self.delivery.overdue)
        desired = {partition.device for partition in change.advertise}
        if desired != {device for device in self.config.advertised() if device.gpu == change.gpu.uuid}:
            reason = Reason.ADVERTISE_TIMEOUT if self.overdue else Reason.ADVERTISING
            return Stage(reason=reason, message=self.pending, failed=self.overdue)
        return self.confirmation.stages[change.gpu.uuid]


class Advertiser:
    """`advertise` is called once a pass, after the steps on hardware."""

    def __init__(
        self,
        file: ConfigFile,
        guard: NodeGuard,
        confirmer: Confirmer,
        node: LatestVersion[ObservedNode],
        delivery: ContainerDelivery,
        *,
        modes: ComputeModes,
        clock: Callable[[], float],
    ) -> None:
        self._file, self._guard, self._confirmer, self._node = file, guard, confirmer, node
        self._delivery, self._modes = delivery, modes
        self._mode_problems: Mapping[str, str] = MappingProxyType({})
        self._durations, self._refused_seconds = Durations(clock), 0.0
        """For how long the Node has refused its taint, or to be without it, or was not read."""
        unhealthy = set(file.config.unhealthy)
        self._faults = FaultBook(clock, {device.gpu for device in file.config.devices if device.id in unhealthy})

    def rival(self, observation: Observation) -> str:
        """Why our plugin advertises nothing, and nothing is changed, while another one serves this node."""
        if observation.rival:
            return observation.rival
        if contested := ", ".join(self._confirmer.contested()):
            return (
                f"another device plugin advertises {contested} too, so gpuplan advertises nothing: stop it on this node"
            )
        return ""

    def begin_pass(self) -> None:
        """Call it before anything is observed."""
        self._guard.begin_pass(watched=self._node.watched)

    def advertise(self, observation: Observation, changes: Collection[GpuChange]) -> Advertised:
        self._refused_seconds = 0.0
        judged = (observation.gpus, observation.driver_problem, observation.kept)
        faults = Faults() if observation.driver_closed else self._faults.judge(*judged)
        pending, delivery = self._push(observation, changes, faults)
        readings = replace(
            observation.readings,
            config=self._file.config,
            in_force=self._file.in_force(observation.readings.loaded),
            node=self._node.get(),
        )
        confirmation = self._confirmer.confirm(readings, [gpu.uuid for gpu in observation.gpus])
        rival = self.rival(observation)
        unlabelled = self._guard.hold_daemons(readings.node, needed=readings.needs_daemons)
        unwritten = unlabelled or self._release_node(readings, confirmation, rival=rival)
        if self._guard.may_be_off:
            self._refused_seconds = max(self._refused_seconds, self._durations.seconds("taken off"))
        self._durations.end_pass()
        return Advertised(
            config=readings.config,
            confirmation=confirmation,
            rival=rival,
            pending=pending,
            overdue=self._refused_seconds >= TAINT_SECONDS,
            unwritten=unwritten,
            tainted=self._guard.why,
            delivery=delivery,
            mode_problems=self._mode_problems,
            faults=faults,
            due_seconds=self._guard.due_seconds,
            counts_right=self._guard.counts_right,
        )

    def _push(self, observation: Observation, changes: Collection[GpuChange], faults: Faults) -> tuple[str, Delivery]:
        """Write the plugin's config; returns why it could not be written yet, or advertises nothing."""
        if observation.driver_closed:
            return self._retire(observation), Delivery()
        if observation.driver_problem is not None:
            return self._unread(observation, changes, faults), Delivery()
        file = self._file
        config = render(changes, file.config, faults, boot_id=file.boot_id)
        doomed = [instance for change in changes for instance in change.destroy]
        delivery = self._delivery.prepare(config, observation, doomed)
        config = delivery.apply(config)
        config = occupy(config, observation.occupied(config))
        kubelet = observation.witnessed.kubelet or file.config.kubelet
        config = drain(config, drained(observation.plan, observation.gpus), kubelet)
        rival = self.rival(observation)
        recalled = "" if rival else _recalled(observation, config)
        if rival or recalled or observation.disabled:
            # Also what is known of a GPU that does not even report its UUID.
            config = withdraw_all(config)
        unsafe = {device.id for device in config.devices} if recalled else unsafe_ids(observation, changes)
        late = self._write(config, observation, guarded=not rival, unsafe=unsafe)
        return late or rival or recalled or delivery.reason, delivery

    def _retire(self, observation: Observation) -> str:
        """Before the driver is unloaded: nothing is advertised, and no MPS daemon is kept for slices without a holder:
        the plan makes them again. Of a GPU that it does not list they are the only record, and stay."""
        slices = [of_device(device) for device in self._file.config.devices if device.kind is DeviceKind.MPS]
        again = [p for p in slices if observation.disabled or lists(observation.plan, observation.gpus, p.gpu)]
        config = withdraw_all(without(self._file.config, {p.id for p in again if observation.usage.of(p).free}))
        late = self._write(config, observation, guarded=not self.rival(observation), unsafe=config.withdrawn)
        return late or str(observation.driver_problem)

    def _unread(self, observation: Observation, changes: Iterable[GpuChange], faults: Faults) -> str:
        """While the driver does not answer as a whole the devices stay. No pod gets those that are held; later none."""
        known = {gpu.uuid for gpu in observation.gpus}
        broken = [
            device.id
            for device in self._file.config.devices
            if (device.gpu if device.gpu in known else UNKNOWN_GPUS) in faults.broken
        ]
        # What is held, or left of a pod that is gone, is known without the driver.
        held = unsafe_ids(observation, changes).union(observation.usage.forgotten, broken)
        return self._stop(held, observation) or f"the driver does not answer: {observation.driver_problem}"

    def _write(
        self, config: PluginConfig, observation: Observation, *, guarded: bool, unsafe: Collection[str] = frozenset()
    ) -> str:
        """Why not all of it is on disk yet. `guarded`: the Node counts our devices, so that it gets a taint first.

        The taint spares pods a refusal, and waiting for the plugin keeps withdrawals in order. What no pod may get
        waits for neither: devices of broken GPUs, and the `unsafe` ones among those that are being withdrawn.
        """
        late = ""
        unusable = {*config.unhealthy, *(i for i in config.withdrawn if i in unsafe)}
        # Where the list on disk was lost nothing can be stopped ahead of the taint.
        if config != self._file.config and guarded and (self._file.known or not unusable):
            node, lists = self._node.get(), self._lists(observation.readings, config)
            if self._guard.awaits_taint(node, lists) and not observation.driver_closed:
                self._stop(unusable, observation)  # before any request to an API server that may not answer
            if late := self._guard.before_push(node, lists):
                self._refused_seconds = self._durations.seconds("taint")
                # The person who closed the driver waits for this, and pods could start with nothing.
                goes = self._refused_seconds >= TAINT_SECONDS or self._guard.due_seconds is not None
                late = "" if observation.driver_closed and goes else late
        if not late and guarded and not observation.driver_closed:
            # After the taint, and before a pod can get what the GPU is shared as, or the GPU as a whole.
            self._hold_modes(observation, config)
        late = late or self._put(config, observation)
        return (self._stop(unusable, observation) or late) if late else ""

    def _stop(self, ids: Collection[str], observation: Observation) -> str:
        """List these as Unhealthy, and withdraw nothing; returns why that is not on disk."""
        stopped = more_unhealthy(self._file.config, ids)
        stopped = occupy(stopped, observation.occupied(stopped))
        return self._put(stopped, observation) if stopped != self._file.config else ""

    def _put(self, config: PluginConfig, observation: Observation) -> str:
        """Why it is not on disk yet."""
        readings = observation.readings
        config = replace(config, generation=observation.plan.generation if observation.plan is not None else 0)
        overdue, again = self._confirmer.overdue(readings), self._confirmer.reminds(readings)
        try:
            written = self._file.write(config, in_force=readings.in_force, overdue=overdue, again=again)
        except OSError as error:
            return f"the device plugin's config cannot be written: {error}"
        return "" if written else "the device plugin has not loaded the config before this one yet"

    def _hold_modes(self, observation: Observation, config: PluginConfig) -> None:
        plan = observation.plan
        if plan is None or plan.content is None or not plan.content.spec.paused:
            shared = {device.gpu for device in config.devices if device.kind is DeviceKind.MPS}
            self._mode_problems = self._modes.hold(observation.gpus, shared)

    def _release_node(self, readings: Readings, confirmation: Confirmation, *, rival: str) -> str:
        """Lift the taint, or write the counts, where that may be; returns why the Node could not be written."""
        if rival:
            # The other plugin shows our ids for as long as it runs, and the taint would stay as long.
            return self._guard.lift(readings.node, for_now=True)
        lists, unlisted = self._lists(readings, readings.config), confirmation.unlisted
        return self._guard.after_push(readings.node, lists, confirmation.unlike, all_withdrawn=unlisted)

    def _lists(self, readings: Readings, config: PluginConfig) -> Lists:
        """Of all resources that our plugin advertises, or did: the kubelet never forgets one."""
        mine = {device.resource for device in (*readings.config.devices, *config.devices)}
        mine.update(readings.loaded.registered if readings.loaded else ())
        return Lists(
            counts=counts(config),
            capacities=capacities(config),
            before=counts(self._file.config),
            # What another plugin advertises too is counted by it: our taint would stay for as long as it runs.
            ours=mine.difference(self._confirmer.contested()),
        )


def _recalled(observation: Observation, config: PluginConfig) -> str:
    """Why nothing may be advertised yet: a client that still reads HandedBack=True may act on it."""
    recalled = observation.plan is not None and observation.plan.handed_back and config.advertised()
    return "the plan still reports the node as handed back: devices are advertised once it does not" if recalled else ""
