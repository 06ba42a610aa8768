"""What agents and the scheduler make of a result: the next snapshot."""

from collections import Counter
from dataclasses import replace

from controller.model.demand import is_partition
from controller.model.results import PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import Desired, GpuView, MigDesired, MpsDesired, NodeView, PartitionView, PlanView
from partitioning.resources import mig_resource


def applied(snapshot: Snapshot, result: PlanningResult, *, settled: bool = True) -> Snapshot:
    """Plans written, and with `settled` also actuated and advertised; no pod bound yet. Placements are reservations."""
    changes = {change.node: change for change in result.node_changes}
    plans = []
    for plan in snapshot.plans:
        change = changes.get(plan.name)
        if change is None:
            plans.append(plan)
            continue
        desired = {item.index: item.desired for item in change.gpus}
        gpus = tuple(
            _written(gpu, desired[gpu.index], settled=settled) if gpu.index in change.changed else gpu
            for gpu in plan.gpus
        )
        plans.append(replace(plan, planned=change.gpus, gpus=gpus))
    offered = {plan.name: plan for plan in plans}
    nodes = tuple(_advertised(node, offered.get(node.name)) for node in snapshot.nodes)
    reservations = {one.uid: one.node for one in result.placed}
    return replace(snapshot, plans=tuple(plans), nodes=nodes, reservations=reservations)


def bound(snapshot: Snapshot, result: PlanningResult) -> Snapshot:
    """Every placed pod runs on its node and holds free partitions there."""
    where = {one.uid: one.node for one in result.placed}
    running = [replace(pod, node=where[pod.uid], unschedulable=False) for pod in snapshot.pending if pod.uid in where]
    plans = []
    for plan in snapshot.plans:
        requested: list[tuple[str, str]] = [
            (name, pod.title)
            for pod in running
            if pod.node == plan.name
            for name, count in pod.gpu
            for _ in range(count)
        ]
        plans.append(replace(plan, gpus=tuple(_held(gpu, requested) for gpu in plan.gpus)))
        assert not requested, f"{plan.name} lacks {requested}"
    pending = tuple(pod for pod in snapshot.pending if pod.uid not in where)
    return replace(snapshot, plans=tuple(plans), pods=(*snapshot.pods, *running), pending=pending)


def _written(gpu: GpuView, desired: Desired, *, settled: bool) -> GpuView:
    if not settled:
        return replace(gpu, desired=desired, settled=False, under_way=True, state="Changing")
    retained = [part for part in gpu.partitions if part.used]
    return replace(gpu, desired=desired, partitions=tuple(_partitions(desired, retained, gpu.index)), state="Ready")


def _partitions(desired: Desired, retained: list[PartitionView], gpu: int) -> list[PartitionView]:
    parts = list(retained)
    if isinstance(desired, MigDesired):
        taken = {part.start for part in retained}
        parts += [
            PartitionView(
                resource=mig_resource(one.profile),
                profile=one.profile,
                start=one.start,
                size=one.size,
                state="Free",
                id=f"MIG-{gpu}-{one.profile}-{one.start}",
            )
            for one in desired.layout
            if one.start not in taken
        ]
    elif isinstance(desired, MpsDesired):
        left = Counter(part.resource for part in retained)
        for share in desired.slices:
            if left[share.resource]:
                left[share.resource] -= 1
            else:
                parts.append(PartitionView(resource=share.resource, memory_mib=share.memory_mib, state="Free"))
    return sorted(parts, key=lambda part: (part.start, part.resource))


def _held(gpu: GpuView, requested: list[tuple[str, str]]) -> GpuView:
    parts = []
    for part in gpu.partitions:
        match = next((one for one in requested if one[0] == part.resource), None)
        if part.used or match is None:
            parts.append(part)
        else:
            requested.remove(match)
            parts.append(replace(part, state="Used", pod=match[1]))
    return replace(gpu, partitions=tuple(parts))


def _advertised(node: NodeView, plan: PlanView | None) -> NodeView:
    offered = {name: amount for name, amount in node.allocatable.items() if not is_partition(name)}
    for gpu in plan.gpus if plan else ():
        for part in gpu.partitions:
            offered[part.resource] = offered.get(part.resource, 0) + 1
    return replace(node, allocatable=offered)
