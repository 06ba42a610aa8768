"""Describes MPS slices: shares of one GPU with a memory limit each, and what a GPU can hold of them.

Takes sizes in GB (10^9 bytes, `nvidia.com/gpu-<N>gb`) or GiB (2^30 bytes, `aliyun.com/gpu-mem`), returns slices with
the limit in whole MiB that MPS enforces, and for an impossible set one sentence with the remedy. The limit is rounded
down, so that slices never promise more than the GPU has. Active thread percentages may add up to more than 100: MPS
shares multiprocessors in time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from partitioning.resources import ACK_MEMORY, mps_resource_gb

BYTES_PER_GB = 10**9
BYTES_PER_MIB = 2**20
MIB_PER_GIB = 1024
MAX_CLIENTS = 48
"""MPS clients per GPU from Volta to CUDA 13.0 (NVIDIA's MPS guide; 60 from CUDA 13.1, which a node may not have)."""
VOLTA = (7, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsSlice:
    """One share of a GPU under MPS."""

    memory_mib: int
    resource: str
    """The name under which pods request it."""
    label: str
    """Its size as people write it, `10gb` or `3gib`; part of device ids."""
    units: int = 1
    """How many of `resource` a pod requests to get it: 1, or its GiB under `aliyun.com/gpu-mem`."""
    thread_percent: int | None = None
    """Limit of active threads, 1 to 100 % of the GPU's multiprocessors; None: no limit."""

    @property
    def sort_key(self) -> tuple[int, str, int]:
        """The one order of slices: small ones first; total, also where some have a thread limit and some none."""
        return (self.memory_mib, self.resource, self.thread_percent or 0)


def in_order(slices: Iterable[MpsSlice]) -> tuple[MpsSlice, ...]:
    """The slices in their one order, so that equal sets are equal values."""
    return tuple(sorted(slices, key=lambda share: share.sort_key))


def slice_of_gb(memory_gb: int, thread_percent: int | None = None) -> MpsSlice:
    """A slice of N GB: 10 GB is 9536 MiB."""
    return MpsSlice(
        memory_mib=memory_gb * BYTES_PER_GB // BYTES_PER_MIB,
        resource=mps_resource_gb(memory_gb),
        label=f"{memory_gb}gb",
        thread_percent=thread_percent,
    )


def slice_of_gib(memory_gib: int, thread_percent: int | None = None) -> MpsSlice:
    """A slice of N GiB, for pods that request `aliyun.com/gpu-mem: N`."""
    return MpsSlice(
        memory_mib=memory_gib * MIB_PER_GIB,
        resource=ACK_MEMORY,
        label=f"{memory_gib}gib",
        units=memory_gib,
        thread_percent=thread_percent,
    )


def check_slices(model_memory_mib: int, compute_capability: tuple[int, int], slices: Iterable[MpsSlice]) -> str | None:
    """None if one GPU can hold all these slices at once, else one sentence with the remedy."""
    held = tuple(slices)
    if not held:
        return None
    if compute_capability < VOLTA:
        major, minor = compute_capability
        seen = f"this one has {major}.{minor}" if major else "that of this one is unknown"
        return f"mps needs a Volta GPU or newer (compute capability 7.0), {seen}: remove mps.slices and use whole: {{}}"
    for share in held:
        problem = _impossible_alone(share)
        if problem is not None:
            return problem
    if len(held) > MAX_CLIENTS:
        return (
            f"mps.slices holds {len(held)} slices, and MPS serves {MAX_CLIENTS} clients per GPU: "
            f"lower count by {len(held) - MAX_CLIENTS} or more"
        )
    requested_mib = sum(share.memory_mib for share in held)
    if requested_mib > model_memory_mib:
        return (
            f"mps.slices request {requested_mib} MiB together, and the GPU has {model_memory_mib} MiB: "
            f"lower memoryGB, memoryGiB or count by {requested_mib - model_memory_mib} MiB or more"
        )
    return None


def _impossible_alone(share: MpsSlice) -> str | None:
    if share.memory_mib <= 0:
        field = "memoryGB" if share.resource != ACK_MEMORY else "memoryGiB"
        return f"{field} of slice {share.label} must be 1 or more"
    if share.thread_percent is not None and not 1 <= share.thread_percent <= 100:
        return f"threadPercent of slice {share.label} is {share.thread_percent}: write 1 to 100, or leave it out"
    return None
