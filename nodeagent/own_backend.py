"""The pass of a node whose GPUs our own device plugin serves: the steps on hardware, then what is advertised.

Takes an observation, the desired items and what was confirmed before, returns what was done. Where a step was taken, or
a reading is too old to act on, it observes again. Must never act where another plugin serves the node.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from nodeagent.advertise.advertiser import Advertiser
from nodeagent.desired.items import DesiredItems
from nodeagent.desired.target import MpsTarget
from nodeagent.hardware.partitions import held_replicas
from nodeagent.observation import Observation, Observer
from nodeagent.outcome.pass_result import PassWork
from nodeagent.steps.actuator import Actuator
from nodeagent.steps.changes import GpuChange, gpu_change

Changes: TypeAlias = dict[int, GpuChange]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnBackend:
    observer: Observer
    actuator: Actuator
    advertiser: Advertiser
    desired: Callable[[Observation], DesiredItems]

    def work(self, observation: Observation, desired: DesiredItems, confirmed: Mapping[str, str]) -> PassWork:
        """One pass."""
        changes = self._changes(desired, observation, confirmed)
        blind = observation.usage.blind
        if blind and any(verdict.why == blind for each in changes.values() for _, verdict in each.blocking):
            observation = self.observer.catch_up(observation)
            changes = self._changes(desired, observation, confirmed)
        if observation.kept and any(change.moves(observation.readings.config) for change in changes.values()):
            # Nothing is destroyed, and nothing comes to pods or goes from them, by an earlier reading.
            observation = self.observer.observe_hardware(observation)
            desired = self.desired(observation)
            changes = self._changes(desired, observation, confirmed)
        # With another plugin on the node a withdrawal proves nothing: its pods may hold the devices behind our ids. And
        # without its Node it is not known whether the node is enabled.
        unknown = observation.readings.node is None
        acting = () if unknown or self.advertiser.rival(observation) else changes.values()
        newest = self.observer.cache.newest_spec_version
        actuated = self.actuator.run_all(acting, spec_version=desired.spec_version, newest=newest)
        if any(done.acted for done in actuated.values()):
            observation = self.observer.observe_hardware(observation)
            desired = self.desired(observation)
            changes = self._changes(desired, observation, confirmed)
        return PassWork(
            observation=observation,
            desired=desired,
            changes=changes,
            actuated=actuated,
            advertised=self.advertiser.advertise(observation, changes.values()),
            confirmed=confirmed,
        )

    def _changes(self, desired: DesiredItems, observation: Observation, confirmed: Mapping[str, str]) -> Changes:
        """By index of the GPU."""
        found: Changes = {}
        for item in desired.items:
            if item.gpu is not None:
                judged = replace(observation.judge(item.gpu), rests=self.actuator.rests(item.gpu.uuid))
                if desired.paused or desired.disabled:
                    # Not even what this agent left half-made is touched.
                    judged = replace(judged, unfinished=frozenset())
                in_use = [p.placed for p in judged.partitions if p.placed and not judged.verdict(p).free]
                target = desired.target(item, in_use, mig_manager=observation.pods.mig_manager)
                if isinstance(target, MpsTarget) and target.replicas and confirmed.get(item.gpu.uuid) == item.item_hash:
                    # The config may have lost them: with this item confirmed, what has their ids is of this size.
                    known = {p.id for p in judged.partitions}
                    held = held_replicas(item.gpu.uuid, target.slices, observation.usage.held.keys() - known)
                    judged = replace(judged, partitions=(*judged.partitions, *held))
                found[item.index] = gpu_change(target, judged)
        return found
