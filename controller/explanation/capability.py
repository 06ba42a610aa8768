"""GPU capability: what GPUs could hold when they are empty, the measure of "never fits" and of "which GPUs would do".

Takes models and resource names, returns counts of partitions. Never looks at what is free.
"""

from collections import Counter
from collections.abc import Collection, Container, Hashable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, chain, islice, repeat
from typing import TypeAlias

from controller.model.demand import Wants, kind_of
from controller.planner.board.devices import Device
from controller.planner.inventory.stock import GpuStock, Ineligible, NodeStock, slice_mib
from controller.planner.inventory.supply import desired_counts
from crds.v1alpha1.names import Partitioning
from partitioning.models import GpuModel
from partitioning.mps import BYTES_PER_GB, BYTES_PER_MIB, MAX_CLIENTS, VOLTA, shareable_mib, slice_of_gb
from partitioning.resources import WHOLE, MigRequest, MpsRequest
from partitioning.states import state_table

_Empty: TypeAlias = tuple[GpuModel, Partitioning | None]
"""An empty GPU; where it is not known how it is divided, either way will do."""
_Counts: TypeAlias = tuple[int, ...]
"""Partitions per resource, in the order in which a pod's are sorted."""
_MOST_KINDS, _MOST_LOADS, _MOST_WORK = 6, 100, 2_000
"""Of resources in one request, of ways to fill a GPU with them, and of ways that are compared: some milliseconds."""
_ROUNDING = 1e-6


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


def equivalence_classes(stocks: Sequence[NodeStock]) -> list[list[int]]:
    """Numbers of nodes, those together whose GPUs could hold the same, and whose labels are the same."""
    found: dict[Hashable, list[int]] = {}
    for number, stock in enumerate(stocks):
        models = tuple(tuple(gpu_models(stock, allowed=allowed)) for allowed in (True, False))
        found.setdefault((models, _most(stock, models[0], WHOLE), stock.node.partitioning), []).append(number)
    return list(found.values())


def could_hold(stock: NodeStock, wants: Wants, *, allowed: bool = True) -> bool:
    """Whether the node's GPUs, all empty and cut at will (`allowed`: as allowed), have as many partitions of each."""
    models = tuple(gpu_models(stock, allowed=allowed))
    enough = all(_most(stock, models, name) >= count for name, count in wants)
    return enough and _together(tuple((model, None) for model in models), wants)


def _kept(gpu: GpuStock) -> Counter[str]:
    """What it has and will have, as it is."""
    return desired_counts(gpu.view.desired) | Counter(part.resource for part in gpu.view.partitions)


def could_give(stock: NodeStock, wants: Wants, changeable: Container[int]) -> bool:
    """The same where only GPUs at these positions are cut, as they may be, and the others keep what they will have."""
    left = Counter(dict(wants))
    gpus: list[_Empty] = []
    for position, gpu in enumerate(stock.gpus):
        if position not in changeable:
            left -= _kept(gpu)
        elif gpu.model is not None:
            gpus.append((gpu.model, gpu.kind))
    rest = tuple(sorted(left.items()))
    enough = all(
        sum(most_on_empty(model, name) for model, kind in gpus if _serves(kind, name)) >= count for name, count in rest
    )
    return enough and _together(tuple(gpus), rest)


def most_together(stocks: Sequence[NodeStock], wants: Sequence[Wants]) -> int:
    """How many of these requests, if any, the GPUs of the nodes could serve at once, empty; it may be fewer."""
    models = [tuple(gpu_models(stock)) for stock in stocks]
    gpus = sum(map(_most, stocks, models, repeat(WHOLE)))
    kinds = set(chain.from_iterable(models))
    room = {
        name: sum(map(_most, stocks, models, repeat(name))) for name in {name for want in wants for name, _ in want}
    }
    shares = {name: min((_share(model, name) for model in kinds), default=1.0) for name in room}
    loads: list[tuple[list[float], float]] = [
        (sorted(dict(want).get(name, 0) for want in wants), float(amount)) for name, amount in room.items()
    ]
    loads.append((sorted(sum(shares[name] * count for name, count in want) for want in wants), gpus + _ROUNDING))
    return min(len([total for total in accumulate(load) if total <= amount]) for load, amount in loads)


class Prospects:
    """What nodes could give once pods have released it. Made once per pass, after the last request was placed.

    Pods may request thousands of different things, so each is asked of one node of those that could give the same.
    """

    def __init__(self, stocks: Sequence[NodeStock], devices: Sequence[Sequence[Device]]) -> None:
        self._stocks, self._devices = stocks, devices
        self._known: dict[tuple[int, Wants, Collection[Ineligible]], bool] = {}

    def would_serve(self, node: int, wants: Wants) -> bool:
        """If no pod held a device there: with partitions that exist, or with GPUs that may be changed."""
        there = Counter(part.resource for gpu in self._stocks[node].gpus for part in gpu.view.partitions)
        return all(there[name] >= amount for name, amount in wants) or self.could_give(node, wants)

    def could_give(self, node: int, wants: Wants, then: Collection[Ineligible] = ()) -> bool:
        """With GPUs that may be changed, or may be once this has ended: more of them than what others have in use."""
        key = (self._alike[node], wants, then)
        found = self._known.get(key)
        if found is None:
            names, devices = {name for name, _ in wants}, self._devices[node]
            changeable = {device.gpu for device in devices if device.gpu >= 0 and names & device.pool.serves}
            changeable |= {number for number, gpu in enumerate(self._stocks[node].gpus) if gpu.ineligible in then}
            found = self._known[key] = bool(changeable) and could_give(self._stocks[node], wants, changeable)
        return found

    @cached_property
    def _alike(self) -> list[int]:
        """Per node the first one that could give the same."""
        first: dict[Hashable, int] = {}
        found = []
        for number, (stock, devices) in enumerate(zip(self._stocks, self._devices, strict=True)):
            pools = frozenset((device.gpu, device.pool.serves) for device in devices)
            gpus = tuple((gpu.model, gpu.kind, gpu.ineligible, frozenset(_kept(gpu).items())) for gpu in stock.gpus)
            found.append(first.setdefault((pools, gpus), number))
        return found


@lru_cache(maxsize=4096)
def _together(gpus: tuple[_Empty, ...], wants: Wants) -> bool:
    """Whether partitions of several resources fit at once, where each resource alone fits.

    Exact: what is still missing after each GPU, for every way to fill it. Where that is too much work the answer is
    yes, unless there is too little of the GPUs for all: "never" must be proved.
    """
    if len(wants) < 2:
        return True
    missing: list[_Counts] = [tuple(count for _, count in wants)]
    work = 0
    for gpu in gpus:
        loads = _loads(gpu, wants) if len(wants) <= _MOST_KINDS else []
        work += len(missing) * len(loads)
        if not loads or len(loads) > _MOST_LOADS or work > _MOST_WORK:
            return sum(min(_share(model, name) for model, _ in gpus) * count for name, count in wants) <= len(gpus)
        missing = _least({_minus(counts, load) for counts in missing for load in loads})
        if not any(missing[0]):
            return True
    return False


@lru_cache(maxsize=4096)
def _loads(gpu: _Empty, wants: Wants) -> list[_Counts]:
    """Ways to fill one GPU with what is wanted, of which none holds less than another; if too many, not all."""
    model, kind = gpu
    found: set[_Counts] = set()
    if kind is not Partitioning.MPS:
        table = state_table(model)
        held = [dict(zip(table.profiles, vector, strict=True)) for vector in table.pareto(0)]
        profiles = [mig.profile if isinstance(mig := kind_of(name), MigRequest) else "" for name, _ in wants]
        found.update(tuple([counts.get(profile, 0) for profile in profiles]) for counts in held)
    if kind is not Partitioning.MIG:
        whole = tuple([int(name == WHOLE) for name, _ in wants])
        slices = [(slice_mib(name), count if model.compute_capability >= VOLTA else 0) for name, count in wants]
        found |= {whole, *islice(_fillings(slices, shareable_mib(model.memory_mib), MAX_CLIENTS), _MOST_LOADS + 1)}
    limits = tuple([count for _, count in wants])
    return [_minus(limits, missing) for missing in _least({_minus(limits, load) for load in found})]


def _fillings(slices: Sequence[tuple[int, int]], free_mib: int, clients: int) -> Iterator[_Counts]:
    """Numbers of MPS slices that fit together, of each so many MiB and so many at most; none of other partitions."""
    if not slices:
        yield ()
        return
    (mib, most), rest = slices[0], slices[1:]
    fitting = min(most, free_mib // mib, clients) if mib else 0
    for count in range(fitting, -1, -1):
        yield from ((count, *more) for more in _fillings(rest, free_mib - count * mib, clients - count))


def _minus(counts: _Counts, load: _Counts) -> _Counts:
    return tuple([max(0, count - had) for count, had in zip(counts, load, strict=True)])


def _least(missing: Collection[_Counts]) -> list[_Counts]:
    """Those of which no other one lacks less of everything; that which lacks least in all comes first."""
    kept: list[_Counts] = []
    for counts in sorted(missing, key=lambda counts: (sum(counts), counts)):
        if not any(all(map(int.__le__, other, counts)) for other in kept):
            kept.append(counts)
    return kept


def _serves(kind: Partitioning | None, resource: str) -> bool:
    return kind is None or (kind is Partitioning.MIG) is isinstance(kind_of(resource), MigRequest)


def _share(model: GpuModel, resource: str) -> float:
    """Of an empty GPU, what one partition takes at least."""
    kind = kind_of(resource)
    spec = model.profile(kind.profile) if isinstance(kind, MigRequest) else None
    if spec is not None:
        return spec.size / model.slots
    return slice_mib(resource) / max(1, shareable_mib(model.memory_mib)) if isinstance(kind, MpsRequest) else 1.0


def _most(stock: NodeStock, models: Sequence[GpuModel], resource: str) -> int:
    if resource == WHOLE:
        return max(len(models), stock.node.gpu_count, stock.node.allocatable.get(WHOLE, 0))
    return sum(most_on_empty(model, resource) for model in models)
