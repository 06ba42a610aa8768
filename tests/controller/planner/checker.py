"""An independent judge of planning results: what any plan must keep, written without the planner.

`check` raises AssertionError with the first rule that a result breaks. It reads the snapshot and the result only, and
counts everything again from the layouts that the GPUs would have.
"""

from collections import Counter

from controller.model.demand import is_partition
from controller.model.results import NodeChange, PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import Desired, GpuView, MigDesired, MpsDesired, NodeView, PlanView, WholeDesired
from controller.simulator.filters import filter_node
from controller.simulator.verdicts import Fit
from partitioning.layouts import Instance, check_layout
from partitioning.mps import check_slices
from partitioning.resources import WHOLE, mig_resource


def check(snapshot: Snapshot, result: PlanningResult, *, for_pods: bool = True) -> None:
    """`for_pods`: nothing is made but for pods that are placed."""
    plans = {plan.name: plan for plan in snapshot.plans}
    nodes = {node.name: node for node in snapshot.nodes}
    changes = {change.node: change for change in result.node_changes}
    assert len(changes) == len(result.node_changes), "a node is changed twice"
    for change in result.node_changes:
        _check_change(plans[change.node], change)
    _check_pods(snapshot, result)
    for name, node in nodes.items():
        _check_room(snapshot, result, node, plans.get(name), changes.get(name))
    for change in result.node_changes if for_pods else ():
        _check_purpose(snapshot, result, plans[change.node], change)
    assert len(result.placed) <= result.bound, "more placed than the bound allows"


def _check_change(plan: PlanView, change: NodeChange) -> None:
    indexes = [item.index for item in change.gpus]
    assert indexes == sorted(set(indexes)), "items are sorted by index, one each"
    assert change.gpus != plan.planned, "a change that changes nothing"
    gpus = {gpu.index: gpu for gpu in plan.gpus}
    before = {item.index: item for item in plan.planned}
    after = {item.index: item for item in change.gpus}
    assert change.changed == tuple(i for i in sorted(before | after) if before.get(i) != after.get(i))
    for index in change.changed:
        item, gpu = after.get(index), gpus[index]
        if item is None:
            assert gpu.pinned or before[index].uuid != gpu.uuid, "an item was dropped"
            continue
        assert not gpu.pinned, "a pinned GPU is people's"
        assert item.uuid == gpu.uuid
        _check_gpu(gpu, item.desired)


def _check_gpu(gpu: GpuView, desired: Desired) -> None:
    assert gpu.model is not None
    if isinstance(desired, MigDesired):
        assert check_layout(gpu.model, desired.layout) is None, check_layout(gpu.model, desired.layout)
        for part in gpu.partitions:
            if part.used:
                instance = Instance(start=part.start, size=part.size, profile=part.profile)
                assert instance in desired.layout, f"{instance} is in use and not in {desired.layout}"
    elif isinstance(desired, WholeDesired):
        assert not any(part.used for part in gpu.partitions), "a partition in use on a GPU that is offered whole"
    elif isinstance(desired, MpsDesired):
        problem = check_slices(gpu.model.memory_mib, gpu.model.compute_capability, desired.slices)
        assert problem is None, problem
        used = Counter(part.resource for part in gpu.partitions if part.used)
        assert used <= Counter(share.resource for share in desired.slices), "a slice in use is gone"


def _check_pods(snapshot: Snapshot, result: PlanningResult) -> None:
    nodes = {node.name: node for node in snapshot.nodes}
    pending = {pod.uid: pod for pod in snapshot.pending}
    seen = [placed.uid for placed in result.placed] + [unplaced.uid for unplaced in result.unplaced]
    assert len(seen) == len(set(seen)), "a pod has two answers"
    for pod in snapshot.pending:
        if pod.unschedulable and any(is_partition(name) for name, _ in pod.gpu):
            assert pod.uid in seen, f"{pod.title} has no answer"
    for one in result.placed:
        verdict = filter_node(pending[one.uid], nodes[one.node], ignored_taints=("gpuplan.dev/changing",))
        assert isinstance(verdict, Fit), f"{one.key} on {one.node}: {verdict}"
    for missing in result.unplaced:
        assert missing.message


def final_partitions(node: NodeView, plan: PlanView | None, change: NodeChange | None) -> Counter[str]:
    """What the node will offer when everything planned has come true."""
    if plan is None:
        return Counter({name: count for name, count in node.allocatable.items() if is_partition(name)})
    planned = {item.index: item.desired for item in change.gpus} if change else {}
    counts: Counter[str] = Counter()
    for gpu in plan.gpus:
        desired = planned.get(gpu.index, gpu.desired) if not gpu.pinned else gpu.desired
        counts += _offered(gpu, desired)
    return counts


def _check_purpose(snapshot: Snapshot, result: PlanningResult, plan: PlanView, change: NodeChange) -> None:
    """Nothing is made that no pod needs."""
    pending = {pod.uid: pod for pod in snapshot.pending}
    requested: Counter[str] = Counter()
    for one in result.placed:
        if one.node == change.node:
            requested.update(dict(pending[one.uid].gpu))
    items = {item.index: item.desired for item in change.gpus}
    made: Counter[str] = Counter()
    for gpu in plan.gpus:
        # Repairs of a GPU in change put back what is held, and are not made again.
        if gpu.index in change.changed and gpu.index in items and gpu.settled:
            made += _offered(gpu, items[gpu.index]) - Counter(part.resource for part in gpu.partitions)
    assert made <= requested, f"{change.node}: {made} are made and {requested} requested"


def _offered(gpu: GpuView, desired: Desired | None) -> Counter[str]:
    if isinstance(desired, MigDesired):
        return Counter(mig_resource(instance.profile) for instance in desired.layout)
    if isinstance(desired, MpsDesired):
        return Counter(share.resource for share in desired.slices)
    if isinstance(desired, WholeDesired):
        return Counter([WHOLE])
    shown = Counter(part.resource for part in gpu.partitions)
    return shown if shown or gpu.mig_enabled else Counter([WHOLE])


def _check_room(
    snapshot: Snapshot, result: PlanningResult, node: NodeView, plan: PlanView | None, change: NodeChange | None
) -> None:
    pending = {pod.uid: pod for pod in snapshot.pending}
    newcomers = [pending[one.uid] for one in result.placed if one.node == node.name]
    if not newcomers:
        return
    there = [*(pod for pod in snapshot.pods if pod.node == node.name), *newcomers]
    assert len(there) <= node.allocatable["pods"], "too many pods"
    requested: Counter[str] = Counter()
    for pod in there:
        requested.update(dict(pod.requests))
    offered = final_partitions(node, plan, change)
    compared = {name for pod in newcomers for name, _ in pod.requests}  # others may hold too much, whatever is planned
    for name, amount in sorted((name, requested[name]) for name in compared):
        planned = is_partition(name) or (name == WHOLE and plan is not None)
        limit = offered[name] if planned else node.allocatable.get(name, 0)
        assert amount <= limit, f"{node.name}: {amount} of {name} requested, {limit} there"


def layouts(result: PlanningResult) -> list[str]:
    """The MIG layouts of every plan that is written, GPU by GPU."""
    return [
        str(item.desired.layout)
        for change in result.node_changes
        for item in change.gpus
        if isinstance(item.desired, MigDesired)
    ]
