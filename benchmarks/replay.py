"""What becomes of a cluster when plans come true and pods are bound: one cycle after the other, without any API.

Takes a snapshot and the result of planning it, returns the next snapshot and what the change cost. Plans are applied
exactly as planned; pods are bound to the nodes that were planned; the kubelet hands out any free partition of the
resource. Raises where something is not there that was planned. Pure.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchmarks.nos.cluster import offered
from controller.model.demand import queue_order
from controller.model.results import PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import Desired, GpuView, MigDesired, MpsDesired, PartitionView, PlanView
from partitioning.layouts import Instance, check_layout
from partitioning.mps import check_slices
from partitioning.resources import mig_resource


class BrokenError(AssertionError):
    """A plan that cannot come true, or that takes away what is in use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the hardware went through."""

    gpus: int = 0
    nodes: int = 0
    destroyed: int = 0


def applied(snapshot: Snapshot, result: PlanningResult) -> tuple[Snapshot, Cost]:
    """Every planned GPU as planned, confirmed and advertised."""
    changes = {change.node: {item.index: item for item in change.gpus} for change in result.node_changes}
    plans: list[PlanView] = []
    gpus = nodes = destroyed = 0
    for plan in snapshot.plans:
        items = changes.get(plan.name)
        if items is None:
            plans.append(plan)
            continue
        after = tuple(_cut(gpu, items[gpu.index].desired) if gpu.index in items else gpu for gpu in plan.gpus)
        recut = [(old, new) for old, new in zip(plan.gpus, after, strict=True) if _contents(old) != _contents(new)]
        gpus, nodes = gpus + len(recut), nodes + bool(recut)
        destroyed += sum((_contents(old) - _contents(new)).total() for old, new in recut)
        planned = tuple(items[index] for index in sorted(items))
        plans.append(replace(plan, gpus=after, planned=planned))
    by_name = {plan.name: plan for plan in plans}
    shown = tuple(
        replace(node, allocatable=offered(by_name[node.name].gpus)) if node.name in changes else node
        for node in snapshot.nodes
    )
    return replace(snapshot, plans=tuple(plans), nodes=shown), Cost(gpus=gpus, nodes=nodes, destroyed=destroyed)


def bound(snapshot: Snapshot, where: Mapping[str, str]) -> Snapshot:
    """Pods by uid on the nodes given; each gets free partitions there."""
    running = [replace(pod, node=where[pod.uid], unschedulable=False) for pod in snapshot.pending if pod.uid in where]
    wanted: dict[str, list[tuple[str, str]]] = {}
    for pod in running:
        slots = [(resource, pod.title) for resource, count in pod.gpu for _ in range(count)]
        wanted.setdefault(pod.node, []).extend(slots)
    plans = []
    for plan in snapshot.plans:
        left = wanted.get(plan.name, [])
        plans.append(replace(plan, gpus=tuple(_given(gpu, left) for gpu in plan.gpus)) if left else plan)
        if left:
            raise BrokenError(f"{plan.name} has no partition for {left}")
    pending = tuple(pod for pod in snapshot.pending if pod.uid not in where)
    return replace(snapshot, plans=tuple(plans), pods=(*snapshot.pods, *running), pending=pending)


def first_fit(snapshot: Snapshot) -> dict[str, str]:
    """Where a scheduler would bind pods now: queue order, the first node by name that has the partitions."""
    free = {
        plan.name: Counter(part.resource for gpu in plan.gpus for part in gpu.partitions if not part.used)
        for plan in snapshot.plans
    }
    where: dict[str, str] = {}
    for pod in sorted(snapshot.pending, key=queue_order):
        wants = Counter(dict(pod.gpu))
        name = next((name for name, has in free.items() if wants <= has), None)
        if name is not None and wants:
            free[name] -= wants
            where[pod.uid] = name
    return where


def _contents(gpu: GpuView) -> Counter[tuple[str, int]]:
    return Counter((part.resource, part.start) for part in gpu.partitions)


def _cut(gpu: GpuView, desired: Desired) -> GpuView:
    """The GPU with these contents; what is in use keeps its place and holder, or the plan is broken."""
    assert gpu.model is not None
    if isinstance(desired, MigDesired):
        problem = check_layout(gpu.model, desired.layout)
        wanted = [_instance(one) for one in desired.layout]
    elif isinstance(desired, MpsDesired):
        problem = check_slices(gpu.model.memory_mib, gpu.model.compute_capability, desired.slices)
        wanted = [PartitionView(resource=share.resource, memory_mib=share.memory_mib) for share in desired.slices]
    else:
        problem, wanted = None, []
    if problem is not None:
        raise BrokenError(f"GPU {gpu.index}: {problem}")
    there = list(gpu.partitions)
    parts = [_kept(there, part) or replace(part, state="Free") for part in wanted]
    lost = [part for part in there if part.used]
    if lost:
        raise BrokenError(f"GPU {gpu.index}: {lost[0].resource} at {lost[0].start} is in use and not in the plan")
    parts.sort(key=lambda part: (part.start, part.resource))
    return replace(gpu, desired=desired, partitions=tuple(parts), state="Ready")


def _instance(one: Instance) -> PartitionView:
    return PartitionView(resource=mig_resource(one.profile), profile=one.profile, start=one.start, size=one.size)


def _kept(there: list[PartitionView], part: PartitionView) -> PartitionView | None:
    """One that exists already, a used one first; each is kept once."""
    equal = [old for old in there if (old.resource, old.start) == (part.resource, part.start)]
    found = min(equal, key=lambda old: not old.used, default=None)
    if found is not None:
        there.remove(found)
    return found


def _given(gpu: GpuView, wanted: list[tuple[str, str]]) -> GpuView:
    parts = []
    for part in gpu.partitions:
        match = None if part.used else next((one for one in wanted if one[0] == part.resource), None)
        if match is not None:
            wanted.remove(match)
        parts.append(part if match is None else replace(part, state="Used", pod=match[1]))
    return replace(gpu, partitions=tuple(parts))
