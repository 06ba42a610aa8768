"""Sets of MPS slices on one GPU: take one of a resource, and keep as many idle ones as still fit.

Takes lists of slices, returns slices. Never drops a slice that was kept before.
"""

from collections.abc import Sequence

from partitioning.mps import MAX_CLIENTS, MpsSlice, in_order


def take(slices: list[MpsSlice], resource: str) -> MpsSlice | None:
    """The first slice of a resource, with its thread limit; it is removed from the list."""
    match = next((share for share in slices if share.resource == resource), None)
    if match is not None:
        slices.remove(match)
    return match


def with_idle(kept: Sequence[MpsSlice], idle: Sequence[MpsSlice], total_mib: int) -> tuple[MpsSlice, ...]:
    """Those that are kept, and idle ones, small ones first, while the GPU's memory and clients last."""
    slices = list(kept)
    free_mib = total_mib - sum(share.memory_mib for share in kept)
    for share in in_order(idle):
        if share.memory_mib <= free_mib and len(slices) < MAX_CLIENTS:
            slices.append(share)
            free_mib -= share.memory_mib
    return tuple(slices)
