"""What the memory of a GPU shared by MPS can be made into at most, for bounds.

In go values of slices, out comes the most that any filling of so many GB is worth, and what that filling is. A slice of
N GB is N units here although it takes up to one MiB less, so that GPUs are credited with that much more: bounds may be
too large, never too small.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from partitioning.mps import BYTES_PER_GB, BYTES_PER_MIB

Filling = tuple[int, ...]
"""How many slices of each size."""


def slice_gb(size_mib: int) -> int:
    """The whole GB that a slice's name says; its MiB are rounded down."""
    return -(-size_mib * BYTES_PER_MIB // BYTES_PER_GB)


def units(free_mib: int, clients: int, sizes_mib: Mapping[str, int]) -> int:
    """GB of memory, with all that the slices may save by rounding."""
    most = min(clients, max((free_mib // size for size in sizes_mib.values()), default=0))
    return (free_mib + most) * BYTES_PER_MIB // BYTES_PER_GB


def richest(values: Sequence[tuple[int, float]], most: int) -> list[tuple[float, Filling]]:
    """Per amount up to `most`, the dearest filling with slices of these sizes (GB) and values."""
    nothing: tuple[float, Filling] = (0.0, (0,) * len(values))
    found = [nothing]
    for amount in range(1, most + 1):
        best, filling = found[amount - 1]
        for position, (size, value) in enumerate(values):
            if size <= amount and value > 0:
                worth, before = found[amount - size]
                if worth + value > best:
                    best = worth + value
                    filling = (*before[:position], before[position] + 1, *before[position + 1 :])
        found.append((best, filling))
    return found
