"""Confirms what is advertised: loaded by the plugin, allocatable at the kubelet, schedulable at the Node.

Takes the config on disk, the plugin's `loaded.json`, GetAllocatableResources and the Node's counts. Returns, for each
GPU, which stage its partitions have reached, and after a deadline the reason why they got no further. Compares ids and
not counts, because equal counts can hide wrong ids. Deadlines run on the monotonic clock from the moment at which the
present state was first observed. Never writes anything.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from crds.v1alpha1.names import Reason
from nodeagent.advertise.taint import lowered
from nodeagent.durations import Durations
from nodeagent.handover.config import Device, Loaded, PluginConfig
from nodeagent.observation import Readings
from nodeagent.observed.kubelet import Allocatable, NoAnswer
from nodeagent.observed.rivals import Contest
from partitioning.resources import classify

NOTHING: frozenset[str] = frozenset()
PLUGIN_POD = "pod of DaemonSet gpuplan-device-plugin on this node"
USUAL_SECONDS = 5.0
"""The plugin loads a config within some tens of milliseconds: after this long the message names its pod."""
BLINK_SECONDS = 2.0
"""A plugin that registers again is away from the kubelet for a moment; that unsettles nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """How far one GPU's partitions came."""

    schedulable: bool = False
    reason: Reason = Reason.CONFIRMED
    message: str = ""
    failed: bool = False
    """A deadline is over: an administrator must act."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """All advertised devices, and each GPU's stage."""

    all_allocatable: bool
    """In force, and pod-resources shows exactly the healthy ids."""
    unlike: frozenset[str] | None = None
    """Resources of which it shows other ids than these; None where it is not known, or another config is in force."""
    all_withdrawn: bool
    """In force, and pod-resources shows none of the withdrawn ids, whatever else it lacks."""
    unlisted: bool
    """The same of what pod-resources shows, in force or not: a device plugin that is away lists nothing."""
    stages: Mapping[str, Stage] = field(default_factory=dict)
    """By GPU UUID."""
    schedulable: frozenset[str] = NOTHING
    """Ids that the Node's counts are known to cover."""


class Confirmer:
    def __init__(
        self, *, clock: Callable[[], float], loaded_deadline_seconds: float, allocatable_deadline_seconds: float
    ) -> None:
        self._durations = Durations(clock)
        self._loaded_deadline_seconds = loaded_deadline_seconds
        self._allocatable_deadline_seconds = allocatable_deadline_seconds
        self._schedulable: frozenset[str] = NOTHING
        self._confirmed: dict[str, str] = {}
        self._reminded = 0
        self._contest = Contest(clock, deadline_seconds=allocatable_deadline_seconds)

    def confirm(self, readings: Readings, gpus: Iterable[str]) -> Confirmation:
        """Confirm what can be confirmed now. Call it once a pass: it also keeps the deadlines."""
        # GetAllocatableResources and the Node's allocatable leave out what is listed as Unhealthy.
        healthy = frozenset(device.id for device in readings.config.healthy())
        allocatable = _allocatable_ids(readings.allocatable)
        self._schedulable = self._covered(readings, allocatable) & healthy
        overdue = self.overdue(readings)
        stages = {gpu: self._stage(gpu, readings, allocatable, overdue=overdue) for gpu in sorted(set(gpus))}
        if allocatable is not None and readings.in_force:
            self._contest.record(allocatable, self._own(readings.config, healthy))
        listed = NOTHING.union(*allocatable.values()) if allocatable is not None else None
        shown = listed if readings.in_force else None
        self._durations.end_pass()
        return Confirmation(
            all_allocatable=shown == healthy,
            unlike=_unlike(allocatable, readings.config) if allocatable is not None and readings.in_force else None,
            all_withdrawn=shown is not None and shown.isdisjoint(readings.config.withdrawn),
            unlisted=listed is not None and listed.isdisjoint(readings.config.withdrawn),
            stages=stages,
            schedulable=self._schedulable,
        )

    def _own(self, config: PluginConfig, healthy: frozenset[str]) -> frozenset[str]:
        """What the kubelet can have from our plugin: for a moment also what an older list named."""
        if self._durations.seconds("in force", config.hash) >= BLINK_SECONDS:
            return healthy.union(config.drained)  # which are healthy to a kubelet that still admits its pods
        return healthy.union(config.withdrawn, (device.id for device in config.devices))

    def contested(self) -> tuple[str, ...]:
        """Resources that another plugin advertises too. While there is one, ours advertises nothing."""
        return self._contest.resources()

    def overdue(self, readings: Readings) -> bool:
        """The plugin has had its time to load this config."""
        return not readings.in_force and self._loading_seconds(readings) >= self._loaded_deadline_seconds

    def reminds(self, readings: Readings) -> bool:
        """True at the end of each deadline that the plugin lets pass: time to write the config for it again.

        Heals what a clock that was set back, or a lost inotify event, left waiting for ever.
        """
        passed = 0 if readings.in_force else int(self._loading_seconds(readings) // self._loaded_deadline_seconds)
        due, self._reminded = passed > self._reminded, passed
        return due

    def _loading_seconds(self, readings: Readings) -> float:
        return self._durations.seconds("loaded", readings.config.hash)

    def _covered(self, readings: Readings, allocatable: Mapping[str, frozenset[str]] | None) -> frozenset[str]:
        """Once a Node showed as many of a resource as the kubelet has, each of these ids is schedulable."""
        if allocatable is None or readings.node is None:
            return self._schedulable
        shown = readings.node.allocatable
        covered = {i for resource, ids in allocatable.items() if shown.get(resource, 0) == len(ids) for i in ids}
        absent = sorted(self._schedulable - set().union(*allocatable.values()))
        gone = {i for i in absent if self._durations.seconds("absent", i) >= BLINK_SECONDS}
        return (self._schedulable - gone) | covered

    def _stage(
        self, gpu: str, readings: Readings, allocatable: Mapping[str, frozenset[str]] | None, *, overdue: bool
    ) -> Stage:
        mine = [device for device in readings.config.healthy() if device.gpu == gpu]
        devices = repr(mine)
        # What was confirmed of one GPU stays so while the config of another one is on its way.
        new = self._confirmed.get(gpu) != devices
        late = partial(self._late, gpu, devices)
        problem = _plugin_problem(readings.loaded, gpu, {device.resource for device in mine})
        if problem:
            return late("plugin", problem, reason=Reason.DEVICE_PLUGIN_ERROR)
        if new and not readings.in_force:
            return self._not_loaded(readings, overdue=overdue)
        covered = all(device.id in self._schedulable for device in mine)
        if allocatable is None:
            why = readings.allocatable.reason if isinstance(readings.allocatable, NoAnswer) else ""
            unanswered = late("allocatable", f"whether the kubelet still has these devices is unknown: {why}")
            # One question without an answer withdraws nothing; a whole deadline without one does.
            return Stage(schedulable=True) if covered and not new and not unanswered.failed else unanswered
        known = NOTHING if new else self._schedulable
        absent = sorted(d.id for d in mine if d.id not in allocatable.get(d.resource, NOTHING) and d.id not in known)
        if absent:
            return late("allocatable", f"the kubelet does not show {_some(absent, mine)}")
        if readings.node is None:
            return late("node", "this Node was not read from the API")
        counts = {resource: len(ids) for resource, ids in allocatable.items()}
        short = {device.resource for device in mine if device.id not in self._schedulable}
        wrong = sorted(short | set(lowered(readings.node, counts))) if new else sorted(short)
        if wrong:
            return late("node", f"the Node does not show the new count of {', '.join(wrong)}")
        if readings.in_force:
            self._confirmed[gpu] = devices
        return Stage(schedulable=True)

    def _not_loaded(self, readings: Readings, *, overdue: bool) -> Stage:
        if not overdue:
            where = f" ({PLUGIN_POD})" if self._loading_seconds(readings) >= USUAL_SECONDS else ""
            message = f"the device plugin has not loaded the new config yet{where}"
            return Stage(reason=Reason.ADVERTISING, message=message)
        return Stage(
            reason=Reason.DEVICE_PLUGIN_ERROR,
            message=f"the device plugin has not loaded the config for {self._loaded_deadline_seconds:g} s: "
            f"{unanswered(readings.loaded)}",
            failed=True,
        )

    def _late(self, gpu: str, devices: str, what: str, message: str, *, reason: Reason = Reason.ADVERTISING) -> Stage:
        """The stage of what is not there yet; failed after its deadline. The message may name other ids each time."""
        seconds = self._durations.seconds(what, gpu, devices)
        if seconds < self._allocatable_deadline_seconds:
            return Stage(reason=reason, message=message)
        if reason is Reason.ADVERTISING:
            reason = Reason.ADVERTISE_TIMEOUT
        return Stage(
            reason=reason,
            message=f"{message} after {self._allocatable_deadline_seconds:g} s: see whether the device plugin runs "
            f"({PLUGIN_POD}), its log and the kubelet's, and whether another plugin serves these resources",
            failed=True,
        )


def unanswered(loaded: Loaded | None) -> str:
    """Why our device plugin has not loaded a config, and where to look."""
    general = [error.message for error in loaded.errors if not error.gpu] if loaded else []
    why = general[0] if general else "it does not answer"
    return f"{why}; see whether its pod runs, and its log ({PLUGIN_POD})"


def _allocatable_ids(allocatable: Allocatable | NoAnswer) -> dict[str, frozenset[str]] | None:
    """Of GPU resources only: other plugins' devices are ignored."""
    if isinstance(allocatable, NoAnswer):
        return None
    return {name: frozenset(ids) for name, ids in allocatable.ids.items() if classify(name) is not None}


def _unlike(allocatable: Mapping[str, frozenset[str]], config: PluginConfig) -> frozenset[str]:
    healthy: dict[str, set[str]] = {}
    for device in config.healthy():
        healthy.setdefault(device.resource, set()).add(device.id)
    return frozenset(n for n in {*healthy, *allocatable} if healthy.get(n, NOTHING) != allocatable.get(n, NOTHING))


def _some(absent: Sequence[str], mine: Sequence[Device]) -> str:
    """Counts instead of ids: GPUs with the same problem have the same sentence, which is then written once."""
    shown = sorted({device.resource for device in mine if device.id in absent})
    count = "any" if len(absent) == len(mine) else f"{len(absent)} of {len(mine)}"
    return f"{count} of its devices ({', '.join(shown)})"


def _plugin_problem(loaded: Loaded | None, gpu: str, resources: set[str]) -> str:
    for error in loaded.errors if loaded else ():
        if error.gpu == gpu or error.resource in resources:
            return f"device plugin: {error.message}"
    return ""
