"""Counts partitions that pods can have without any new plan: those that a node advertises, and those under way.

Takes the stock of one node, returns counts per resource. What exists is the node's allocatable less what pods request
there, without partitions that are about to be withdrawn. Under way is what GPUs in change will give beyond that.
`divide` separates existing supply on ineligible GPUs, a mere count, from idle partitions of eligible ones, which a plan
may give to a pod as they are or cut again.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from controller.model.demand import is_device, is_partition
from controller.model.views import Desired, GpuView, MigDesired, MpsDesired, PartitionView, WholeDesired
from controller.planner.inventory.stock import GpuStock, Ineligible, NodeStock
from crds.v1alpha1.names import Partitioning, PartitionState
from partitioning.resources import WHOLE, mig_resource


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSupply:
    """Free partitions of one node, per resource; zero counts are left out."""

    existing: Mapping[str, int] = field(default_factory=dict)
    under_way: Mapping[str, int] = field(default_factory=dict)


ReadyParts = dict[int, list[PartitionView]]
"""Idle partitions that a node advertises, per position of an eligible GPU."""


def desired_counts(desired: Desired | None) -> Counter[str]:
    """What a GPU will give, per resource."""
    counts: Counter[str] = Counter()
    if isinstance(desired, MigDesired):
        for instance in desired.layout:
            counts[mig_resource(instance.profile)] += 1
        for profile, count in desired.counts:
            counts[mig_resource(profile)] += count
    elif isinstance(desired, MpsDesired):
        for share in desired.slices:
            counts[share.resource] += 1
    elif isinstance(desired, WholeDesired):
        counts[WHOLE] += 1
    return counts


def at_most(gpus: Iterable[GpuView]) -> Counter[str]:
    """What GPUs have, and will have where they change: pods can hold no more of it."""
    there: Counter[str] = Counter()
    for gpu in gpus:
        coming = desired_counts(gpu.desired if gpu.under_way else None)
        there += Counter(part.resource for part in gpu.partitions) | coming
    return there


def supply_of(stock: NodeStock) -> NodeSupply:
    if stock.ineligible in (Ineligible.PLAN_FAILED, Ineligible.HELD_OFF):
        return NodeSupply()
    changing = [gpu for gpu in stock.gpus if not gpu.view.settled]
    drained = _drained(stock)
    if not changing and not drained:
        return NodeSupply(existing=_unrequested(stock))
    coming = sum((desired_counts(gpu.view.desired) for gpu in changing if gpu.view.under_way), Counter())
    leaving = _leaving(changing) + drained
    observed = Counter(part.resource for gpu in stock.gpus for part in gpu.view.partitions)
    others = Counter(
        part.resource
        for gpu in stock.gpus
        if gpu.view.settled or not gpu.view.under_way
        for part in gpu.view.partitions
    )
    ours = stock.node.partitioning is not None and not (stock.plan is not None and stock.plan.by_nvidia)
    there = at_most(gpu.view for gpu in stock.gpus)
    existing, under_way = {}, {}
    advertised = {name for name, count in stock.node.allocatable.items() if count and is_device(name)}
    for resource in sorted(advertised | {name for name in coming if is_device(name)}):
        allocatable = stock.node.allocatable.get(resource, 0)
        if ours and is_partition(resource):  # those that are gone already, and that it still counts, are no supply
            allocatable = min(allocatable, there[resource])
        # Withdrawn partitions leave allocatable late: until then it exceeds what will be left of the observed ones.
        late = min(leaving[resource], max(0, allocatable - (observed[resource] - leaving[resource])))
        lasting = allocatable - late
        requested = stock.usage.held[resource]
        now = max(0, lasting - requested)
        later = max(0, max(lasting, coming[resource] + min(lasting, others[resource])) - requested) - now
        if now:
            existing[resource] = now
        if later:
            under_way[resource] = later
    return NodeSupply(existing=existing, under_way=under_way)


def _unrequested(stock: NodeStock) -> dict[str, int]:
    """All there is where nothing changes, which is the rule."""
    held = stock.usage.held
    return {
        name: count - held[name]
        for name, count in sorted(stock.node.allocatable.items())
        if count > held[name] and is_device(name)
    }


def _drained(stock: NodeStock) -> Counter[str]:
    """What no new pod gets: it leaves allocatable, held or not."""
    drains = [(gpu.view.partitions, gpu.drain.partitions) for gpu in stock.gpus if gpu.drain is not None]
    return Counter(part.resource for parts, ids in drains for part in parts if part.id in ids)


def _leaving(changing: list[GpuStock]) -> Counter[str]:
    """Free partitions that their GPU's desired state lacks: the agent withdraws them sooner or later."""
    leaving: Counter[str] = Counter()
    for gpu in changing:
        missing = desired_counts(gpu.view.desired)
        for part in sorted(gpu.view.partitions, key=lambda part: not part.used):
            if missing[part.resource]:
                missing[part.resource] -= 1
            elif not part.used and gpu.view.desired is not None:
                leaving[part.resource] += 1
    return leaving


def divide(stock: NodeStock, supply: NodeSupply) -> tuple[dict[str, int], ReadyParts]:
    """Existing supply: how much is on ineligible GPUs, and which idle partitions of eligible GPUs are the rest of it.

    A count does not tell which device the kubelet will allocate; all that are idle and advertised are alike to it.
    """
    elsewhere: dict[str, int] = {}
    ready: ReadyParts = {}
    if not supply.existing:
        return elsewhere, ready
    fullest_first = sorted(range(len(stock.gpus)), key=lambda position: -len(stock.gpus[position].retained))
    of_resource: dict[str, list[tuple[int, PartitionView]]] = {}
    for position in fullest_first:
        gpu = stock.gpus[position]
        for part in (gpu.idle or _uncut(gpu)) if gpu.ineligible is None else ():
            of_resource.setdefault(part.resource, []).append((position, part))
    for resource, count in supply.existing.items():
        idle = of_resource.get(resource, [])
        for position, part in idle[:count]:
            ready.setdefault(position, []).append(part)
        if count > len(idle):
            elsewhere[resource] = count - len(idle)
    return elsewhere, ready


_ONE_WHOLE = (PartitionView(resource=WHOLE, state=PartitionState.FREE),)


def _uncut(gpu: GpuStock) -> tuple[PartitionView, ...]:
    """A GPU that may be shared by MPS and is not: where the node advertises whole GPUs, it is one of them."""
    whole = gpu.kind is Partitioning.MPS and not gpu.retained and not isinstance(gpu.view.desired, MpsDesired)
    return _ONE_WHOLE if whole else ()
