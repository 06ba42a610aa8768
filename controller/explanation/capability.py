"""GPU capability: what GPUs could hold when they are empty, the measure of "never fits" and of "which GPUs would do".

Takes models and resource names, returns counts of partitions. Never looks at what is free.
"""

from collections import Counter
from collections.abc import Container, Hashable, Iterator, Sequence
from functools import lru_cache

from controller.model.demand import Wants, kind_of
from controller.planner.inventory.stock import NO_INSTANCES, NodeStock
from controller.planner.inventory.supply import desired_counts
from partitioning.models import GpuModel
from partitioning.mps import BYTES_PER_GB, BYTES_PER_MIB, MAX_CLIENTS, VOLTA, shareable_mib, slice_of_gb
from partitioning.packing import NoRoom, pack
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


def alike(stocks: Sequence[NodeStock]) -> list[list[int]]:
    """Numbers of nodes, those together whose GPUs could hold the same, and whose labels are the same."""
    found: dict[Hashable, list[int]] = {}
    for number, stock in enumerate(stocks):
        models = tuple(tuple(gpu_models(stock, allowed=allowed)) for allowed in (True, False))
        found.setdefault((models, _most(stock, models[0], WHOLE), stock.node.partitioning), []).append(number)
    return list(found.values())


def could_hold(stock: NodeStock, wants: Wants, *, allowed: bool = True) -> bool:
    """Whether the node's GPUs, all empty and cut at will (`allowed`: as allowed), have as many partitions of each."""
    models = list(gpu_models(stock, allowed=allowed))
    return all(_most(stock, models, name) >= count for name, count in wants) and _together(tuple(models), wants)


def could_give(stock: NodeStock, wants: Wants, changeable: Container[int]) -> bool:
    """The same where only GPUs at these positions are cut at will, and the others keep what they have or will have."""
    left = Counter(dict(wants))
    models: list[GpuModel] = []
    for position, gpu in enumerate(stock.gpus):
        if position not in changeable:
            left -= desired_counts(gpu.view.desired) | Counter(part.resource for part in gpu.view.partitions)
        elif gpu.model is not None:
            models.append(gpu.model)
    rest = tuple(sorted(left.items()))
    enough = all(sum(most_on_empty(model, name) for model in models) >= count for name, count in rest)
    return enough and _together(tuple(models), rest)


@lru_cache(maxsize=4096)
def _together(models: tuple[GpuModel, ...], wants: Wants) -> bool:
    """Whether partitions of several resources fit at once, the largest first, where each resource alone fits."""
    if len(wants) < 2:
        return True
    held: list[Counter[str]] = [Counter() for _ in models]
    largest_first = sorted(
        wants, key=lambda want: (max(_share(model, want[0]) for model in models), want), reverse=True
    )
    for name, count in largest_first:
        for _ in range(count):
            home = next((number for number, model in enumerate(models) if _fits(model, held[number], name)), None)
            if home is None:
                return False
            held[home][name] += 1
    return True


def _share(model: GpuModel, resource: str) -> float:
    """Of an empty GPU, what one partition takes at least."""
    most = most_on_empty(model, resource)
    return 1 / most if most else 0.0


def _fits(model: GpuModel, held: Counter[str], resource: str) -> bool:
    """Whether an empty GPU can have this one as well."""
    if not most_on_empty(model, resource):
        return False
    names = held + Counter({resource: 1})
    kinds = {name: kind_of(name) for name in names}
    profiles = {kind.profile: names[name] for name, kind in kinds.items() if isinstance(kind, MigRequest)}
    if len(profiles) == len(names):
        return not isinstance(pack(model, pinned=NO_INSTANCES, requested=profiles), NoRoom)
    slices = [(kind.memory_gb, names[name]) for name, kind in kinds.items() if isinstance(kind, MpsRequest)]
    if len(slices) == len(names):
        taken_mib = sum(slice_of_gb(size).memory_mib * count for size, count in slices)
        return taken_mib <= shareable_mib(model.memory_mib) and names.total() <= MAX_CLIENTS
    return not held  # a whole GPU, which nothing shares


def _most(stock: NodeStock, models: Sequence[GpuModel], resource: str) -> int:
    if resource == WHOLE:
        return max(len(models), stock.node.gpu_count, stock.node.allocatable.get(WHOLE, 0))
    return sum(most_on_empty(model, resource) for model in models)
