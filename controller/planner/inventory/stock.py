"""The stock of nodes and GPUs: the values that a pass plans with.

One NodeStock per node, made by `eligibility.take_stock` from a snapshot. A GPU is eligible when its layout may be
changed now; otherwise `ineligible` says why. What must stay on a GPU is every partition that is not proved free.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from controller.model.capacity import Capacity
from controller.model.demand import kind_of
from controller.model.views import Drain, GpuView, MpsDesired, NodeView, PartitionView, PlanView
from controller.simulator.usage import Usage
from crds.v1alpha1.names import Partitioning
from partitioning.layouts import Instance, Layout
from partitioning.models import GpuModel, model_for_product
from partitioning.mps import MpsSlice, slice_of_gb
from partitioning.resources import MpsRequest

NO_INSTANCES = Layout.of(())


class Ineligible(Enum):
    """Why a node or GPU is not planned for. The words for people are in `controller.explanation.remedies`."""

    NO_PLAN = "no plan yet"
    NOT_REPORTED = "the agent has not reported the GPUs yet"
    AGENT_SILENT = "the agent is silent"
    CHANGING = "being changed"
    HELD_OFF = "its driver is closed by a label"
    PLAN_FAILED = "planning it raised an error"
    NOT_ENABLED = "no label enables it"
    OTHER_LABEL = "labelled for the other kind of partition"
    MANUAL = "mode Manual"
    PAUSED = "paused"
    NODE_NOT_READY = "the node is not ready"
    WRITE_REFUSED = "the API server refused its plan"
    PINNED = "in spec.gpus"
    SHARED_EQUALLY = "shared equally, by its node's label or the setting"
    BY_NVIDIA = "served by NVIDIA's device plugin"
    DRAINED = "drained for a pod that has waited long"
    NO_PLACEMENT = "a partition without its placement, as of a lost GPU"
    WAITING = "waits for a partition in use that its plan lacks"
    FAILED = "failed"
    BACKING_OFF = "tried again later after failed changes"
    MIG_MODE_DISABLED = "MIG mode off"
    MIG_MODE_ENABLED = "MIG mode on"
    UNKNOWN_MODEL = "unknown model"
    NO_MIG_PLACEMENTS = "MIG placements not known"
    NO_MIG = "a model without MIG"
    NO_MPS = "older than Volta"
    HELD_WHOLE = "in use as a whole GPU"
    USE_UNKNOWN = "perhaps in use as a whole GPU"
    FOREIGN = "partitions of the other kind in use"


@dataclass(slots=True, kw_only=True)
class GpuStock:
    """One GPU. `retained` and `idle` are its partitions."""

    view: GpuView
    model: GpuModel | None
    kind: Partitioning | None
    """By MIG or by MPS, where the node's label decides that."""
    ineligible: Ineligible | None
    retained: tuple[PartitionView, ...] = ()
    idle: tuple[PartitionView, ...] = ()
    drain: Drain | None = None
    """What of it no new pod gets. Of that, what is free is neither in `retained` nor in `idle`."""
    failed: Layout = NO_INSTANCES
    """Planned instances that could not be made: the GPU is planned again around them."""
    equal_shares: MpsDesired | None = None
    """What it is shared into whether or not a pod waits."""


@dataclass(slots=True, kw_only=True)
class NodeStock:
    """One node. `ineligible` is set where the whole node is left out; then its GPUs are ineligible as well."""

    node: NodeView
    plan: PlanView | None
    usage: Usage
    ineligible: Ineligible | None
    gpus: tuple[GpuStock, ...] = ()
    held_unseen: frozenset[str] = frozenset()
    """Resources that a bound pod holds although the status does not show which partition."""
    overheld: frozenset[str] = frozenset()
    """Of these, resources of which bound pods hold more than there is: what is made there is counted as theirs."""

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def free(self) -> Capacity:
        """What bound pods leave of it."""
        return self.node.capacity - self.usage.held

    def is_large_enough(self, needs: Capacity) -> bool:
        """Empty, it has the CPU and memory."""
        capacity = self.node.capacity
        return needs.cpu_milli <= capacity.cpu_milli and needs.memory_bytes <= capacity.memory_bytes

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
    """Memory that MPS slices hold; by their name where the status does not report it."""
    return sum(part.memory_mib or slice_mib(part.resource) for part in partitions)


@lru_cache(maxsize=1024)
def slice_of(resource: str) -> MpsSlice | None:
    """A new MPS slice of a resource; None for anything else."""
    kind = kind_of(resource)
    return slice_of_gb(kind.memory_gb) if isinstance(kind, MpsRequest) else None


def slice_mib(resource: str) -> int:
    """Memory of one MPS slice of a resource; 0 for anything else."""
    share = slice_of(resource)
    return share.memory_mib if share is not None else 0
