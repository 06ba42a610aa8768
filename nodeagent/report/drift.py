"""Finds in a pass the changes that undo what was changed outside gpuplan on a GPU whose item was confirmed before.

Takes what the actuator did and which item of each GPU was confirmed last, returns which of it is repair: what it
destroyed there appeared outside gpuplan, and what it created had vanished. A change that this agent began itself, for
another item, a reboot, which takes MIG instances along, and what became of a GPU that could not be read are no drift.
Must never decide what is repaired.
"""

from crds.v1alpha1.names import GpuState
from nodeagent.desired.plan import ObservedPlan
from nodeagent.outcome.pass_result import PassResult
from nodeagent.steps.actuator import Actuated
from partitioning.layouts import Instance


class DriftWatch:
    """One per agent; call `repairs` once a pass."""

    def __init__(self) -> None:
        self._plan_uid = ""
        self._ours: set[str] = set()
        """GPUs whose hardware this agent, a reboot, a new driver or a fault may have changed since their item was
        confirmed."""
        self._boot_id = self._driver_version = ""

    def repairs(self, result: PassResult) -> list[tuple[Actuated, str]]:
        """What was done on a GPU that is as planned again, or on the way there, and a sentence about it."""
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
            elif (
                uuid not in self._ours and (done := result.work.actuated.get(uuid)) and (done.destroyed or done.created)
            ):
                found.append((done, _message(outcome.index, done)))
            if outcome.state is GpuState.READY and not excused:
                self._ours.discard(uuid)
        return found

    def _begin(self, plan: ObservedPlan | None) -> None:
        """With another plan: its status is what an earlier agent reported."""
        uid = plan.uid if plan is not None else ""
        if uid != self._plan_uid:
            self._plan_uid = uid
            self._ours.clear()
            facts = (plan.status.get("node") if plan is not None else None) or {}
            self._boot_id, self._driver_version = (str(facts.get(key) or "") for key in ("bootID", "driverVersion"))

    def _restarted(self, result: PassResult) -> bool:
        """The machine, or its driver, which was away or closed in the last pass: MIG instances end with either."""
        node, version = result.observation.readings.node, result.observation.driver_version
        now = node.boot_id if node is not None else ""
        before, self._boot_id = self._boot_id, now or self._boot_id
        before_version, self._driver_version = self._driver_version, version
        return bool(before and now and before != now) or before_version != version


def _message(index: int, done: Actuated) -> str:
    parts = []
    if done.destroyed:
        parts.append(f"{_named(done.destroyed)} created outside gpuplan, was unused and is destroyed")
    if done.created:
        parts.append(f"{_named(done.created)} destroyed outside gpuplan and is created again")
    return f"GPU {index}: {'; '.join(parts)}. Change the plan instead of the hardware."


def _named(instances: tuple[Instance, ...]) -> str:
    return f"{', '.join(str(instance) for instance in instances)} {'was' if len(instances) == 1 else 'were'}"
