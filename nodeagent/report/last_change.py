"""Says what of a GPU's partitions changed last: which came, which went, when, for which generation of the plan.

Takes the outcome of a pass and the GPU as the API's status has it, so that no write that was late or lost hides a step.
Steps of one generation add up until the GPU is ready. Of a GPU that could not be read, or that no status has reported
yet, nothing is known to have come or gone.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from crds.v1alpha1.names import GpuState
from crds.v1alpha1.status import LastChange
from nodeagent.outcome.pass_result import GpuOutcome

MOST_NAMED = 64


def last_change(outcome: GpuOutcome, live: Iterable[Mapping[str, Any]], generation: int, now: str) -> LastChange | None:
    gpu = outcome.gpu
    before = next((one for one in live if gpu is not None and gpu.uuid and one.get("uuid") == gpu.uuid), None)
    if gpu is None or before is None:
        return None
    known = LastChange.read(before["lastChange"]) if before.get("lastChange") else None
    there = {part["uuid"]: _named(part["resource"], part.get("start")) for part in before.get("partitions") or ()}
    found = {
        entry.partition.id: _named(
            entry.partition.resource, entry.partition.placed.start if entry.partition.placed else None
        )
        for entry in outcome.partitions
    }
    unread = gpu.problem or (before.get("state") == GpuState.FAILED and not there)
    if unread or found.keys() == there.keys():
        return known
    goes_on = known is not None and known.generation == generation and before.get("state") != GpuState.READY
    earlier = known if known is not None and goes_on else LastChange(time=now, generation=generation)
    created = [*(earlier.created or ()), *sorted(found[one] for one in found.keys() - there.keys())]
    destroyed = [*(earlier.destroyed or ()), *sorted(there[one] for one in there.keys() - found.keys())]
    return LastChange(
        time=now, generation=generation, created=created[:MOST_NAMED] or None, destroyed=destroyed[:MOST_NAMED] or None
    )


def in_words(change: LastChange | None, generation: int) -> str:
    """For the Event of a GPU that matches its plan; empty where this generation changed nothing on it."""
    if change is None or change.generation != generation:
        return ""
    parts = [("created", change.created), ("destroyed", change.destroyed)]
    words = " and ".join(f"{verb} {', '.join(names)}" for verb, names in parts if names)
    return f": {words} (generation {generation})"


def _named(resource: str, start: int | None) -> str:
    name = resource.rpartition("/")[2]
    return name if start is None else f"{name} at {start}"
