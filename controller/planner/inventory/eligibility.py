"""Takes stock: decides for each GPU whether its layout may be changed now, what must stay on it and what may go.

Takes a snapshot, returns one NodeStock per node. What must stay is every partition that is not proved free: used or
unknown ones, and free ones of a resource that a bound pod holds somewhere on the node without the status showing where.
Never calls a GPU eligible whose hardware does not agree with its plan, or which users own.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from controller.model.demand import is_partition, kind_of
from controller.model.equal_shares import equal_shares
from controller.model.snapshot import Snapshot
from controller.model.views import (
    Drain,
    GpuView,
    MigDesired,
    MpsDesired,
    NodeView,
    PartitionView,
    PlannerOptions,
    PlanView,
    PodView,
)
from controller.planner.inventory.stock import NO_INSTANCES, GpuStock, Ineligible, NodeStock, mig_layout
from controller.planner.inventory.supply import at_most
from controller.planner.isolation import by_node
from controller.simulator.usage import Usage
from crds.v1alpha1.names import CLOSED, LABEL_DRIVER, GpuState, Mode, Partitioning
from partitioning.layouts import Layout, with_model_names
from partitioning.models import GpuModel
from partitioning.mps import VOLTA
from partitioning.placements import occupancy, placement_of
from partitioning.resources import WHOLE, MigRequest, MpsRequest


def take_stock(snapshot: Snapshot, options: PlannerOptions, failed: Collection[str] = ()) -> list[NodeStock]:
    """A pod for which a scheduler is preempting counts as bound where it is nominated. `failed` nodes are left out."""
    plans = {plan.name: plan for plan in snapshot.plans}
    preempting = [
        replace(pod, node=pod.nominated_node)
        for pod in snapshot.pending
        if pod.nominated_node and not pod.nomination_ours and not pod.deleting
    ]
    pods_of: dict[str, list[PodView]] = {}
    for pod in (*snapshot.pods, *preempting):
        pods_of.setdefault(pod.node, []).append(pod)

    def stock(_: int, node: NodeView) -> NodeStock:
        if node.name in failed:
            return NodeStock(node=node, plan=None, usage=Usage.of(()), ineligible=Ineligible.PLAN_FAILED)
        return node_stock(node, plans.get(node.name), pods_of.get(node.name, ()), options)

    return by_node(stock, snapshot.nodes)


def node_stock(node: NodeView, plan: PlanView | None, pods: Iterable[PodView], options: PlannerOptions) -> NodeStock:
    """One node; `pods` are bound there."""
    stock = NodeStock(node=node, plan=plan, usage=Usage.of(pods), ineligible=_node_ineligible(node, plan))
    if plan is None:
        return stock
    stock.held_unseen = _held_unseen(plan, pods)
    stock.overheld = _overheld(stock, plan) if stock.held_unseen else frozenset()
    by_people = stock.ineligible in (Ineligible.MANUAL, Ineligible.PAUSED)  # its agent drains nothing then
    drains = {} if by_people else {item.uuid: item.drain for item in plan.planned if item.drain is not None}
    stock.gpus = tuple(
        _gpu_stock(stock, gpu, options, None if gpu.pinned else drains.get(gpu.uuid)) for gpu in plan.gpus
    )
    return stock


def _node_ineligible(node: NodeView, plan: PlanView | None) -> Ineligible | None:
    if node.partitioning is None:
        return Ineligible.NOT_ENABLED
    if plan is None:
        return Ineligible.NO_PLAN
    if plan.mode != Mode.AUTO:
        return Ineligible.MANUAL
    if plan.paused:
        return Ineligible.PAUSED
    if node.labels.get(LABEL_DRIVER) == CLOSED:
        return Ineligible.HELD_OFF
    if not plan.gpus or plan.node_uid != node.uid:
        return Ineligible.NOT_REPORTED
    if not plan.agent_alive:
        return Ineligible.AGENT_SILENT
    if plan.write_refused:
        return Ineligible.WRITE_REFUSED
    return None if node.ready else Ineligible.NODE_NOT_READY


def _held_unseen(plan: PlanView, pods: Iterable[PodView]) -> frozenset[str]:
    """Resources of which bound pods hold more than the status shows: by pod name where it names holders."""
    shown = plan.shown
    unseen: dict[str, int] = {}
    for pod in pods:
        for resource, amount in pod.gpu:
            missing = amount - shown.get((resource, pod.title), 0)
            if missing > 0:
                unseen[resource] = unseen.get(resource, 0) + missing
    return frozenset([resource for resource, count in unseen.items() if count > shown.get((resource, ""), 0)])


def _overheld(stock: NodeStock, plan: PlanView) -> frozenset[str]:
    there, held = at_most(plan.gpus), stock.usage.held
    return frozenset(name for name in stock.held_unseen if is_partition(name) and held[name] > there[name])


def _gpu_stock(stock: NodeStock, gpu: GpuView, options: PlannerOptions, drain: Drain | None) -> GpuStock:
    """Sort the partitions first: an ineligible GPU's idle ones are supply, too, if the node still advertises them."""
    retained, idle, unseen = gpu.used, gpu.free, stock.held_unseen
    if unseen:
        retained = tuple([part for part in gpu.partitions if part.used or part.resource in unseen])
        idle = tuple([part for part in gpu.free if part.resource not in unseen])
    if drain is not None:
        idle = tuple([part for part in idle if part.id not in drain.partitions])
    kind = _partition_kind(stock.node, gpu)
    shares = None
    if kind is Partitioning.MPS and not gpu.mig_enabled and not gpu.pinned:
        shares = equal_shares(stock.node, gpu, replicas=options.mps_replicas, ack_units=options.ack_units)
    ineligible = stock.ineligible or _gpu_ineligible(stock, gpu, kind, retained)
    if ineligible in (None, Ineligible.HELD_WHOLE, Ineligible.FOREIGN):  # to say: a release alone changes nothing
        if shares is not None:
            ineligible = Ineligible.SHARED_EQUALLY
        elif stock.plan is not None and stock.plan.by_nvidia:
            ineligible = Ineligible.BY_NVIDIA
    model, known = gpu.model, options.geometries
    if model is not None and known is not None and known.entries:
        model = known.restrict(model, mig_layout(gpu.partitions))
    failed = NO_INSTANCES if ineligible is not None or gpu.settled else could_not_be_made(gpu)
    return GpuStock(
        view=gpu,
        model=model,
        kind=kind,
        ineligible=ineligible,
        retained=retained,
        idle=idle,
        drain=drain,
        failed=failed,
        equal_shares=shares,
    )


def _partition_kind(node: NodeView, gpu: GpuView) -> Partitioning | None:
    """The node's label decides; `auto` takes each GPU as it is, since switching MIG modes is not done yet."""
    mig, mps, auto = Partitioning
    known: dict[str | None, Partitioning] = {mig: mig, mps: mps, auto: mig if gpu.mig_enabled else mps}
    return known.get(node.partitioning)


def _gpu_ineligible(
    stock: NodeStock, gpu: GpuView, kind: Partitioning | None, retained: Sequence[PartitionView]
) -> Ineligible | None:
    if gpu.pinned:
        return Ineligible.PINNED
    if gpu.unplaced:
        return Ineligible.NO_PLACEMENT
    if gpu.model is None:
        return Ineligible.UNKNOWN_MODEL
    wrong_mode = _wrong_mode(gpu, gpu.model, kind)
    if wrong_mode is not None:
        return wrong_mode
    if not gpu.settled:
        if gpu.under_way:
            return Ineligible.CHANGING
        if gpu.state == GpuState.WAITING_FOR_RELEASE:
            return Ineligible.WAITING
        if not len(could_not_be_made(gpu)):
            return Ineligible.FAILED
    if gpu.backing_off:
        return Ineligible.BACKING_OFF
    if WHOLE in stock.held_unseen and not gpu.mig_enabled and not isinstance(gpu.desired, MpsDesired):
        return Ineligible.USE_UNKNOWN  # a pod of the node holds a whole GPU; the status does not show which
    ours = MigRequest if kind is Partitioning.MIG else MpsRequest
    foreign = [part for part in retained if not isinstance(kind_of(part.resource), ours)]
    whole = [part for part in foreign if part.resource == WHOLE]
    if whole:
        return Ineligible.HELD_WHOLE if any(part.held for part in whole) else Ineligible.USE_UNKNOWN
    return Ineligible.FOREIGN if foreign else None


def could_not_be_made(gpu: GpuView) -> Layout:
    """Where changing a GPU failed: instances that its item has and the GPU lacks, with nothing in their place."""
    if gpu.state != GpuState.FAILED or gpu.model is None or not isinstance(gpu.desired, MigDesired):
        return NO_INSTANCES
    observed = mig_layout(gpu.partitions)
    taken = occupancy(gpu.model, observed)
    missing = with_model_names(gpu.model, gpu.desired.layout).without(with_model_names(gpu.model, observed))
    return Layout.of(one for one in missing if not placement_of(gpu.model, one).blockers & taken)


def _wrong_mode(gpu: GpuView, model: GpuModel, kind: Partitioning | None) -> Ineligible | None:
    if kind is Partitioning.MIG:
        if not model.mig_capable:
            return Ineligible.NO_MIG
        if not gpu.mig_enabled:
            return Ineligible.MIG_MODE_DISABLED
        return None if model.confirmed else Ineligible.NO_MIG_PLACEMENTS  # slices and whole GPUs need none
    if gpu.mig_enabled:
        return Ineligible.MIG_MODE_ENABLED
    return Ineligible.NO_MPS if model.compute_capability < VOLTA else None
