"""Which devices the kubelet should hand out first: those that leave whole GPUs free.

In go the ids to choose from and the GPU of each, out come ids in order of preference. Pure and deterministic; only a
hint, the kubelet may ignore it.
"""

from collections import Counter
from collections.abc import Collection, Mapping


def preferred(
    available: Collection[str], must_include: Collection[str], size: int, gpu_of: Mapping[str, str]
) -> tuple[str, ...]:
    """`size` ids: the required ones, then their GPUs' others, then the GPUs with the fewest left that suffice.

    Ids without a GPU (no longer offered) are left out; then there may be fewer.
    """
    chosen = sorted(must_include)[:size]
    left = sorted(id_ for id_ in set(available) - set(chosen) if id_ in gpu_of)
    free = Counter(gpu_of[id_] for id_ in left)
    begun = {gpu_of[id_] for id_ in chosen if id_ in gpu_of}
    need = size - len(chosen)

    def rank(id_: str) -> tuple[bool, bool, int, str, str]:
        gpu = gpu_of[id_]
        suffices = free[gpu] >= need
        # Fewest free first where one GPU is enough; else most free first, so that the container spans few GPUs.
        return (gpu not in begun, not suffices, free[gpu] if suffices else -free[gpu], gpu, id_)

    return (*chosen, *sorted(left, key=rank)[:need])
