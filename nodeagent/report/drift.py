"""Finds in a pass the changes that undo what was changed outside gpuplan on a GPU whose item was confirmed before.

Takes what the actuator did and which item of each GPU was confirmed last, returns one `Repair` per GPU: what it
destroyed there appeared outside gpuplan, and what it created had vanished. A change that this agent began itself, for
another item, a reboot, which takes MIG instances along, and what became of a GPU that could not be read are no drift.
Must never decide what is repaired.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from crds.v1alpha1.names import GpuState
from nodeagent.desired.plan import ObservedPlan
from nodeagent.report.outcome import GpuOutcome, PassResult
from partitioning.layouts import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One GPU that is as planned again, or on the way there."""

    index: int
    destroyed: tuple[Instance, ...]
    created: tuple[Instance, ...]

    @property
    def message(self) -> str:
        parts = []
        if self.destroyed:
            parts.append(f"{_named(self.destroyed)} created outside gpuplan, was unused and is destroyed")
        if self.created:
            parts.append(f"{_named(self.created)} destroyed outside gpuplan and is created again")
        return f"GPU {self.index}: {'; '.join(parts)}. Change the plan instead of the hardware."


class DriftWatch:
    """One per agent; call `repairs` once a pass."""

    def __init__(self) -> None:
        self._plan_uid = ""
        self._ours: set[str] = set()
        """GPUs whose hardware this agent, a reboot, a new driver or a fault may have changed since their item was
        confirmed."""
        self._boot_id = self._driver_version = ""

    def repairs(self, result: PassResult) -> list[Repair]:
        self._begin(result.observation.plan)
        found = []
        excused = self._restarted(result)
        for outcome in result.outcomes:
            if outcome.gpu is None or not outcome.managed:
                continue
            uuid = outcome.gpu.uuid
            # A GPU that cannot be read may be reset by the driver or by a person, as its message requests.
            if excused or outcome.gpu.problem or result.work.confirmed.get(uuid, "") != outcome.item_hash:
                self._ours.add(uuid)
            elif uuid not in self._ours and (repair := _repair(outcome, result)):
                found.append(repair)
            if outcome.state is GpuState.READY and not excused:
                self._ours.discard(uuid)
        return found

    def _begin(self, plan: ObservedPlan | None) -> None:
        """With another plan: its status is what an earlier agent reported."""
        uid = plan.uid if plan is not None else ""
        if uid != self._plan_uid:
            self._plan_uid = uid
            self._ours.clear()
            node = plan.status.get("node") if plan is not None else None
            facts = node if isinstance(node, Mapping) else {}
            self._boot_id, self._driver_version = (str(facts.get(key) or "") for key in ("bootID", "driverVersion"))

    def _restarted(self, result: PassResult) -> bool:
        """The machine, or its driver, which was away or closed in the last pass: MIG instances end with either."""
        node, version = result.observation.readings.node, result.observation.driver_version
        now = node.boot_id if node is not None else ""
        before, self._boot_id = self._boot_id, now or self._boot_id
        before_version, self._driver_version = self._driver_version, version
        return bool(before and now and before != now) or before_version != version


def _repair(outcome: GpuOutcome, result: PassResult) -> Repair | None:
    done = result.work.actuated.get(outcome.gpu.uuid) if outcome.gpu is not None else None
    if done is None or not (done.destroyed or done.created):
        return None
    return Repair(index=outcome.index, destroyed=done.destroyed, created=done.created)


def _named(instances: tuple[Instance, ...]) -> str:
    return f"{', '.join(str(instance) for instance in instances)} {'was' if len(instances) == 1 else 'were'}"
