"""GPU capability: what GPUs could hold when they are empty, the measure of "never fits" and of "which GPUs would do".

Takes models and resource names, returns counts of partitions. Never looks at what is free.
"""

from collections.abc import Iterator
from functools import lru_cache

from controller.model.demand import Wants, kind_of
from controller.planner.inventory.stock import NodeStock
from partitioning.models import GpuModel
from partitioning.mps import BYTES_PER_GB, BYTES_PER_MIB, MAX_CLIENTS, VOLTA, shareable_mib, slice_of_gb
from partitioning.resources import WHOLE, MigRequest, MpsRequest


@lru_cache(maxsize=4096)
def most_on_empty(model: GpuModel, resource: str) -> int:
    """How many partitions of a resource one empty GPU can have."""
    if resource == WHOLE:
        return 1
    kind = kind_of(resource)
    if isinstance(kind, MigRequest):
        spec = model.profile(kind.profile)
        return spec.max_instances if spec is not None and spec.name == kind.profile and spec.starts else 0
    if isinstance(kind, MpsRequest) and model.compute_capability >= VOLTA:
        return min(MAX_CLIENTS, shareable_mib(model.memory_mib) // slice_of_gb(kind.memory_gb).memory_mib)
    return 0


def largest_slice_gb(model: GpuModel) -> int:
    """Of the largest MPS slice, in GB, that one empty GPU can have; 0 where MPS cannot limit its clients."""
    if model.compute_capability < VOLTA:
        return 0
    # A slice's limit is rounded down to whole MiB.
    return ((shareable_mib(model.memory_mib) + 1) * BYTES_PER_MIB - 1) // BYTES_PER_GB


def gpu_models(stock: NodeStock, *, allowed: bool = True) -> Iterator[GpuModel]:
    """One per GPU; by the node's labels where the agent has not reported them. `allowed`: as restricted by a file."""
    models = [gpu.model if allowed else gpu.view.model for gpu in stock.gpus]
    reported = [model for model in models if model is not None]
    if reported:
        yield from reported
    else:
        for model in stock.models:
            yield from [model] * max(1, stock.node.gpu_count)


def could_hold(stock: NodeStock, wants: Wants, *, allowed: bool = True) -> bool:
    """Whether the node's GPUs, all empty and cut at will (`allowed`: as allowed), have as many partitions of each."""
    models = list(gpu_models(stock, allowed=allowed))
    return all(_most(stock, models, name) >= count for name, count in wants)


def _most(stock: NodeStock, models: list[GpuModel], resource: str) -> int:
    if resource == WHOLE:
        return max(len(models), stock.node.gpu_count, stock.node.allocatable.get(WHOLE, 0))
    return sum(most_on_empty(model, resource) for model in models)
