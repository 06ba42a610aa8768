"""Counts how full the GPUs of a node are, for the gauges: GPUs by their use, and their memory by its state.

Takes a plan and returns sums by model. A GPU of an unknown model is left out of the memory, since how much it has is
not known. What is not proved free counts as used.
"""

from collections import Counter as Tally
from dataclasses import dataclass, field

from controller.model.views import GpuView, PartitionView, PlanView
from partitioning.models import GpuModel

MIB = 1 << 20
USED, IDLE, FREE = "used", "idle", "free"


@dataclass(frozen=True, slots=True)
class Fullness:
    """By model and use, and by model and state."""

    gpus: Tally[tuple[str, str]] = field(default_factory=Tally)
    memory: Tally[tuple[str, str]] = field(default_factory=Tally)

    def add(self, other: "Fullness") -> None:
        self.gpus.update(other.gpus)
        self.memory.update(other.memory)


def fullness(plan: PlanView) -> Fullness:
    """Of one node."""
    found = Fullness()
    for gpu in plan.gpus:
        model = gpu.model.key if gpu.model is not None else ""
        found.gpus[model, _use(gpu)] += 1
        if gpu.model is not None:
            used, idle = (_memory(gpu, gpu.model, used=used) for used in (True, False))
            total = gpu.model.memory_mib
            used, idle = min(used, total), min(idle, total - min(used, total))
            for state, mib in ((USED, used), (IDLE, idle), (FREE, total - used - idle)):
                found.memory[model, state] += mib * MIB
    return found


def _use(gpu: GpuView) -> str:
    """What its partitions are; a GPU without any, or with idle ones alone, is there for any pod."""
    used = [part for part in gpu.partitions if part.used]
    kinds = {"mig" if part.profile else "whole" if part.id == gpu.uuid else "mps" for part in used}
    return "mixed" if len(kinds) > 1 else next(iter(kinds), "none")


def _memory(gpu: GpuView, model: GpuModel, *, used: bool) -> int:
    return sum(_size(part, model) for part in gpu.partitions if part.used is used)


def _size(part: PartitionView, model: GpuModel) -> int:
    """One of unreported size has what its profile has, or the whole GPU."""
    spec = model.profile(part.profile) if part.profile else None
    return part.memory_mib or (spec.memory_mib if spec is not None else 0) or model.memory_mib
