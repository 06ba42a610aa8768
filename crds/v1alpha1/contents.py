"""Decodes the slices of an item that shares a GPU by MPS: one reading for the planner, the agent and the CLI.

Takes the item and the GPU's memory; returns each slice as often as the item lists it, in the item's order. Never judges
whether a GPU can hold them.
"""

from itertools import chain

from crds.v1alpha1.spec import MpsItem, MpsSliceItem
from partitioning.mps import MpsSlice, replicas_of, slice_of_gb, units_of_gib


def slices_of(item: MpsItem, *, memory_mib: int, renamed: bool) -> tuple[MpsSlice, ...]:
    """`renamed`: equal replicas are nvidia.com/gpu.shared where the item does not say."""
    if item.replicas:
        return replicas_of(
            memory_mib,
            item.replicas,
            renamed=item.renamed(otherwise=renamed),
            mergeable=item.fail_requests_greater_than_one is False,
        )
    return tuple(chain.from_iterable(_sized(entry) for entry in item.slices or ()))


def unlimited(item: MpsItem) -> str:
    """Why its slices cannot have the limits that are written; '' where they can."""
    if not any(entry.memory_gb is None and entry.thread_percent is not None for entry in item.slices or ()):
        return ""
    return (
        "threadPercent limits no slice of mps.slices[].memoryGiB (aliyun.com/gpu-mem), which share memory alone: "
        "remove it, or use memoryGB"
    )


def _sized(entry: MpsSliceItem) -> tuple[MpsSlice, ...]:
    count = entry.count or 1
    if entry.memory_gb is None:
        return units_of_gib((entry.memory_gib or 0) * count)
    return (slice_of_gb(entry.memory_gb, entry.thread_percent),) * count
