"""Makes gpuplan's own device plugin advertise nothing on a node that NVIDIA's serves, and waits until it does.

Takes an observation and writes the plugin's config: first with every device withdrawn, then without those that are
free. Returns how far that has come: a plugin that does not answer is reported after a deadline, a pod that holds a
slice is waited for. Must never drop a slice that may be in use, for its daemon would end with it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from crds.v1alpha1.names import Reason
from nodeagent.advertise.config_file import ConfigFile, withdraw_all, without
from nodeagent.advertise.confirm import Stage, unanswered
from nodeagent.advertise.taint import NodeGuard
from nodeagent.durations import Durations
from nodeagent.handover.config import DeviceKind, PluginConfig
from nodeagent.hardware.driver import ObservedGpu
from nodeagent.hardware.partitions import Partition
from nodeagent.observation import Observation
from nodeagent.observed.usage import Verdict
from nodeagent.steps.compute_modes import ComputeModes

Blocking: TypeAlias = tuple[tuple[Partition, Verdict], ...]
OURS = "gpuplan's own device plugin"


@dataclass
class OwnPlugin:
    """Call `withdraw` once a pass."""

    file: ConfigFile
    guard: NodeGuard
    modes: ComputeModes
    clock: Callable[[], float]
    deadline_seconds: float

    def __post_init__(self) -> None:
        self._durations = Durations(self.clock)

    def withdraw(self, observation: Observation) -> tuple[Stage | None, Mapping[str, Blocking]]:
        """None where the plugin advertises nothing and nothing of it is in use; and what is, or may be, by GPU UUID."""
        held = {gpu.uuid: _held_slices(observation, gpu) for gpu in observation.gpus}
        config = self._next(observation, held)
        readings = observation.readings
        try:
            written = self.file.write(config, in_force=readings.in_force, overdue=False)
        except OSError as error:
            waits: Stage | None = self._late(f"the device plugin's config cannot be written: {error}")
        else:
            self.guard.hold_daemons(readings.node, needed=replace(readings, config=config).needs_daemons)
            if not (written and self.file.in_force(readings.loaded)):
                waits = self._late(
                    f"{OURS} still withdraws its devices",
                    f"{OURS} has not withdrawn its devices: {unanswered(readings.loaded)}",
                )
            else:
                waits = _in_use(config, held) if config.devices else None
        self._durations.end_pass()
        return waits, held

    def _next(self, observation: Observation, held: Mapping[str, Blocking]) -> PluginConfig:
        config = withdraw_all(self.file.config)
        if observation.readings.in_force and not self.file.config.advertised():
            kept = {partition.id for found in held.values() for partition, _ in found}
            # Of a GPU that was not observed nothing is known to be free.
            config = without(config, {device.id for device in config.devices if device.gpu in held} - kept)
            shared = {device.gpu for device in config.devices if device.kind is DeviceKind.MPS}
            self.modes.hold(observation.gpus, shared)
        return config

    def _late(self, message: str, overdue: str = "") -> Stage:
        """Failed after the deadline, however often the plugin's answer changes meanwhile."""
        failed = self._durations.seconds("withdrawn") >= self.deadline_seconds
        message = f"{overdue or message}, after {self.deadline_seconds:g} s" if failed else message
        reason = Reason.DEVICE_PLUGIN_ERROR if failed else Reason.ADVERTISING
        return Stage(reason=reason, message=message, failed=failed)


def _in_use(config: PluginConfig, held: Mapping[str, Blocking]) -> Stage:
    """For every GPU of the node, since NVIDIA's plugin changes them together: each names its own holders besides."""
    found = next((pair for pairs in held.values() for pair in pairs), None)
    if found is None:
        why = f"{config.devices[0].id} is on a GPU that cannot be read"
    else:
        partition, verdict = found
        why = f"pod {verdict.pod} holds {partition.id}" if verdict.pod else f"{partition.id}: {verdict.why}"
    message = f"NVIDIA's device plugin serves this node once no slice of {OURS} is in use: {why}"
    return Stage(reason=Reason.WAITING_FOR_RELEASE, message=message)


def _held_slices(observation: Observation, gpu: ObservedGpu) -> Blocking:
    """Slices of our own plugin that a pod may hold: their daemon must stay."""
    judged = observation.judge(gpu)
    ours = (
        p for p in judged.partitions if p.kind is DeviceKind.MPS and p.device in observation.readings.config.devices
    )
    return judged.with_verdicts(p for p in ours if not judged.verdict(p).free)
