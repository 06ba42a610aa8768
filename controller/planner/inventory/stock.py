"""What there is to plan with: per node its plan, and per GPU whether it is open, what must stay and what may go.

In goes a Snapshot, out comes one NodeStock per node. A GPU is open when its layout may be
changed now; a closed one says why. What must stay is every partition that is not proved free: used or unknown ones, and
free ones of a resource that a bound pod holds somewhere on the node without the status showing where.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache

from controller.model.demand import kind_of
from controller.model.known_geometries import KnownGeometries
from controller.model.snapshot import Snapshot
from controller.model.views import GpuView, MigDesired, MpsDesired, NodeView, PartitionView, PlanView, PodView
from controller.planner.isolation import by_node
from controller.simulator import Usage
from partitioning.layouts import Instance, Layout, with_model_names
from partitioning.models import GpuModel, model_for_product
from partitioning.mps import VOLTA, slice_of_gb
from partitioning.placements import occupancy, placement_of
from partitioning.resources import WHOLE, MigRequest, MpsRequest

NO_INSTANCES = Layout.of(())


class Closed(Enum):
    """Why a node or GPU is not planned for; `controller.explanation.causes` has the words and the order."""

    NO_PLAN = "no plan yet"
    NOT_REPORTED = "the agent has not reported the GPUs yet"
    AGENT_SILENT = "the agent is silent"
    CHANGING = "being changed"
    PLAN_FAILED = "planning it raised an error"
    NOT_ENABLED = "no label enables it"
    OTHER_LABEL = "labelled for the other kind of partition"
    MANUAL = "mode Manual"
    PAUSED = "paused"
    NODE_NOT_READY = "the node is not ready"
    WRITE_REFUSED = "the API server refused its plan"
    PINNED = "in spec.gpus"
    RESERVED = "reserved for a pod that has waited longer"
    NO_PLACEMENT = "a partition without its placement, as of a lost GPU"
    WAITING = "waits for a partition in use that its plan lacks"
    FAILED = "failed"
    BACKING_OFF = "tried again later after failed changes"
    MIG_MODE_DISABLED = "MIG mode off"
    MIG_MODE_ENABLED = "MIG mode on"
    UNKNOWN_MODEL = "unknown model"
    NO_MIG = "a model without MIG"
    NO_MPS = "older than Volta"
    HELD_WHOLE = "in use as a whole GPU"
    USE_UNKNOWN = "perhaps in use as a whole GPU"
    FOREIGN = "partitions of the other kind in use"


class Cut(Enum):
    """How a GPU is divided."""

    MIG = "mig"
    MPS = "mps"


@dataclass(slots=True, kw_only=True)
class GpuStock:
    """One GPU. `staying` and `idle` are its partitions."""

    view: GpuView
    model: GpuModel | None
    cut: Cut | None
    closed: Closed | None
    staying: tuple[PartitionView, ...] = ()
    idle: tuple[PartitionView, ...] = ()
    failed: Layout = NO_INSTANCES
    """Planned instances that could not be made: the GPU is planned again around them."""


@dataclass(slots=True, kw_only=True)
class NodeStock:
    """One node. `closed` is set where the whole node is left out; its GPUs, if reported, are then closed as well."""

    node: NodeView
    plan: PlanView | None
    usage: Usage
    closed: Closed | None
    gpus: tuple[GpuStock, ...] = ()
    held_unseen: frozenset[str] = frozenset()
    """Resources that a bound pod holds although the status does not show which partition."""

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def refusal(self) -> str:
        """In the API server's own words, why the plan could not be written."""
        return self.plan.write_refused if self.plan is not None else ""

    @property
    def models(self) -> tuple[GpuModel, ...]:
        """Models of its GPUs, from its label where the agent has not reported them."""
        reported = {gpu.model.key: gpu.model for gpu in self.gpus if gpu.model is not None}
        if reported:
            return tuple(reported[key] for key in sorted(reported))
        by_label = model_for_product(self.node.product) if self.node.product else None
        return (by_label,) if by_label is not None else ()


def mig_layout(partitions: Iterable[PartitionView]) -> Layout:
    """The MIG instances among partitions of one GPU."""
    return Layout.of(
        Instance(start=part.start, size=part.size, profile=part.profile) for part in partitions if part.profile
    )


def mps_mib(partitions: Iterable[PartitionView]) -> int:
    """Memory that MPS slices hold; by their name where the status does not say."""
    return sum(part.memory_mib or slice_mib(part.resource) for part in partitions)


@lru_cache(maxsize=1024)
def slice_mib(resource: str) -> int:
    """Memory of one MPS slice of a resource; 0 for anything else."""
    kind = kind_of(resource)
    return slice_of_gb(kind.memory_gb).memory_mib if isinstance(kind, MpsRequest) else 0


def take_stock(
    snapshot: Snapshot, geometries: KnownGeometries | None = None, failed: Collection[str] = ()
) -> list[NodeStock]:
    """A pod for which a scheduler is preempting counts as bound where it is nominated. `failed` nodes are left out."""
    known = geometries or KnownGeometries()
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
            return NodeStock(node=node, plan=None, usage=Usage.of(()), closed=Closed.PLAN_FAILED)
        return _node_stock(node, plans.get(node.name), pods_of.get(node.name, ()), known)

    return by_node(stock, snapshot.nodes)


def _node_stock(node: NodeView, plan: PlanView | None, pods: Iterable[PodView], known: KnownGeometries) -> NodeStock:
    stock = NodeStock(node=node, plan=plan, usage=Usage.of(pods), closed=_node_closed(node, plan))
    if plan is None:
        return stock
    stock.held_unseen = _held_unseen(plan, pods)
    stock.gpus = tuple(_gpu_stock(stock, gpu, known) for gpu in plan.gpus)
    return stock


def _node_closed(node: NodeView, plan: PlanView | None) -> Closed | None:
    if node.partitioning is None:
        return Closed.NOT_ENABLED
    if plan is None:
        return Closed.NO_PLAN
    if plan.mode != "Auto":
        return Closed.MANUAL
    if plan.paused:
        return Closed.PAUSED
    if not plan.gpus or plan.node_uid != node.uid:
        return Closed.NOT_REPORTED
    if not plan.agent_alive:
        return Closed.AGENT_SILENT
    if plan.write_refused:
        return Closed.WRITE_REFUSED
    return None if node.ready else Closed.NODE_NOT_READY


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


def _gpu_stock(stock: NodeStock, gpu: GpuView, known: KnownGeometries) -> GpuStock:
    """Sort the partitions first: also a closed GPU's idle ones are supply, if the node still offers them."""
    staying, idle, unseen = gpu.used, gpu.free, stock.held_unseen
    if unseen:
        staying = tuple([part for part in gpu.partitions if part.used or part.resource in unseen])
        idle = tuple([part for part in gpu.free if part.resource not in unseen])
    cut = _cut_of(stock.node, gpu)
    closed = stock.closed or _gpu_closed(stock, gpu, cut, staying)
    model = gpu.model
    if model is not None and known.entries:
        model = known.restrict(model, mig_layout(gpu.partitions))
    failed = NO_INSTANCES if closed is not None or gpu.settled else could_not_be_made(gpu)
    return GpuStock(view=gpu, model=model, cut=cut, closed=closed, staying=staying, idle=idle, failed=failed)


def _cut_of(node: NodeView, gpu: GpuView) -> Cut | None:
    """The node's label decides; `auto` takes each GPU as it is, since switching MIG modes is not done yet."""
    match node.partitioning:
        case "mig":
            return Cut.MIG
        case "mps":
            return Cut.MPS
        case "auto":
            return Cut.MIG if gpu.mig_enabled else Cut.MPS
    return None


def _gpu_closed(stock: NodeStock, gpu: GpuView, cut: Cut | None, staying: Sequence[PartitionView]) -> Closed | None:
    if gpu.pinned:
        return Closed.PINNED
    if gpu.unplaced:
        return Closed.NO_PLACEMENT
    if gpu.model is None or (gpu.model.mig_capable and not gpu.model.confirmed):
        return Closed.UNKNOWN_MODEL
    wrong_mode = _wrong_mode(gpu, gpu.model, cut)
    if wrong_mode is not None:
        return wrong_mode
    if not gpu.settled:
        if gpu.under_way:
            return Closed.CHANGING
        if gpu.state == "WaitingForRelease":
            return Closed.WAITING
        if not len(could_not_be_made(gpu)):
            return Closed.FAILED
    if gpu.backing_off:
        return Closed.BACKING_OFF
    if WHOLE in stock.held_unseen and not gpu.mig_enabled and not isinstance(gpu.desired, MpsDesired):
        return Closed.USE_UNKNOWN  # a pod of the node holds a whole GPU; the status does not show which
    ours = MigRequest if cut is Cut.MIG else MpsRequest
    foreign = [part for part in staying if not isinstance(kind_of(part.resource), ours)]
    whole = [part for part in foreign if part.resource == WHOLE]
    if whole:
        return Closed.HELD_WHOLE if any(part.held for part in whole) else Closed.USE_UNKNOWN
    return Closed.FOREIGN if foreign else None


def could_not_be_made(gpu: GpuView) -> Layout:
    """Where changing a GPU failed: instances that its item has and the GPU lacks, with nothing in their place."""
    if gpu.state != "Failed" or gpu.model is None or not isinstance(gpu.desired, MigDesired):
        return NO_INSTANCES
    observed = mig_layout(gpu.partitions)
    taken = occupancy(gpu.model, observed)
    wanted = with_model_names(gpu.model, gpu.desired.layout).without(with_model_names(gpu.model, observed))
    return Layout.of(one for one in wanted if not placement_of(gpu.model, one).blockers & taken)


def _wrong_mode(gpu: GpuView, model: GpuModel, cut: Cut | None) -> Closed | None:
    if cut is Cut.MIG:
        if not model.mig_capable:
            return Closed.NO_MIG
        return None if gpu.mig_enabled else Closed.MIG_MODE_DISABLED
    if gpu.mig_enabled:
        return Closed.MIG_MODE_ENABLED
    return Closed.NO_MPS if model.compute_capability < VOLTA else None
