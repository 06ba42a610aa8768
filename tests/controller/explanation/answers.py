"""The answer that planning gives a pod without a place, checked by the independent checker."""

from dataclasses import replace

from controller.model.reasons import UnplacedReason
from controller.model.results import Unplaced
from controller.model.snapshot import Snapshot
from controller.model.views import GpuView
from controller.planning import plan
from tests.controller.planner.checker import check


def answer_to(snapshot: Snapshot, name: str = "a") -> tuple[UnplacedReason, str]:
    result = plan(snapshot)
    check(snapshot, result)
    found: Unplaced = next(one for one in result.unplaced if one.key[1] == name)
    return found.reason, found.full


def held_by_each(gpu: GpuView) -> GpuView:
    """Every partition has a pod of its own."""
    parts = (replace(part, pod=f"team/p{number}") for number, part in enumerate(gpu.partitions))
    return replace(gpu, partitions=tuple(parts))
