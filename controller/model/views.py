"""Frozen readings of pods, nodes and plans, and the options of the planner.

`controller.api` makes the views from raw JSON once per watch event: quantities are integers already (cpu in milli,
memory in bytes, everything else in units), selectors are small tuples, so that a pass never parses anything and a
controller can hold 5,000 nodes and 50,000 pods. `controller.model.snapshot` has all of them at one moment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.model.capacity import Capacity
from controller.model.known_geometries import KnownGeometries
from controller.model.scheduling import (
    ClaimUse,
    FilterProfile,
    HostPort,
    Labels,
    NodeSelectorTerm,
    PodAffinityTerm,
    SpreadConstraint,
    Taint,
    Toleration,
)
from crds.v1alpha1.names import Mode, PartitionState
from partitioning.layouts import Layout
from partitioning.models import GpuModel
from partitioning.mps import MIB_PER_GIB, MpsSlice, in_order
from partitioning.resources import ACK_MEMORY, SHARED

PodKey = tuple[str, str]  # namespace and name
DEFAULT_SCHEDULERS = frozenset({"default-scheduler"})
DRAINS = 2
DRAINED_PERCENT = 25
IMPROVE_STEPS = 5_000
"""How many exchanges of planned pods are tried where the settings give no other number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodView:
    """A pod as planning needs it. `requests` is the scheduler's total (containers, sidecars, init, overhead)."""

    namespace: str
    name: str
    uid: str
    node: str = ""
    nominated_node: str = ""
    nomination_ours: bool = False
    """The nomination was written by this controller; any other means that a scheduler is preempting there."""
    phase: str = "Pending"
    priority: int = 0
    created: int = 0  # epoch seconds; orders pods of one priority, never compared with a clock here
    requests: tuple[tuple[str, int], ...] = ()  # sorted by resource; zero amounts left out
    gpu: tuple[tuple[str, int], ...] = ()
    """The part of `requests` that `partitioning.resources.classify` knows (MIG, MPS, whole, shared, ACK)."""
    most_mps_per_container: int = 0  # more than one MPS slice in a container is not served
    most_units: int = 0
    """Of ACK's resource in one container."""
    mixed_container: tuple[str, ...] = ()
    """GPU resources of the first container that requests an MPS slice and another kind: it would see the slice only."""
    overriding_container: str = ""
    """A container with a share by MPS that sets NVIDIA_VISIBLE_DEVICES or CUDA_MPS_* itself."""
    misnamed: tuple[str, ...] = ()
    """Requested resources that are named like a partition and are none."""
    mps_users: tuple[int, ...] = ()
    """As whom its containers with a share by MPS run, sorted; -1 where their images say so."""
    scheduler_name: str = "default-scheduler"
    tolerations: tuple[Toleration, ...] = ()
    node_selector: tuple[tuple[str, str], ...] = ()
    node_affinity: tuple[NodeSelectorTerm, ...] | None = None
    """requiredDuringSchedulingIgnoredDuringExecution: one of the terms must match. None: not given."""
    host_ports: tuple[HostPort, ...] = ()
    labels: Labels = ()
    affinity: tuple[PodAffinityTerm, ...] = ()  # required ones only, as in anti_affinity
    anti_affinity: tuple[PodAffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    volumes: tuple[ClaimUse, ...] = ()
    features: tuple[str, ...] = ()  # that the node must declare
    scheduling_gates: tuple[str, ...] = ()
    unschedulable: bool = False  # PodScheduled=False/Unschedulable: the scheduler has tried and failed
    deleting: bool = False
    owner_kind: str = ""
    owner_name: str = ""
    pending_since: int = 0  # seconds since 1970: its creation, or the last change of anything but its status
    gang: str = ""  # pods of one gang run together or not at all; its name within the namespace
    gang_size: int = 0  # how many must run together; 0: as many as there are
    gang_api: str = ""  # API group of the PodGroup that says so as well, and outranks it; empty: there is none
    claims: bool = False  # resource claims: DRA serves the pod, not we

    @property
    def key(self) -> PodKey:
        return (self.namespace, self.name)

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def names_shared(self) -> bool:
        """Whether its request is served depends on which resources nodes have."""
        return bool(self.misnamed) or any(resource in (SHARED, ACK_MEMORY) for resource, _ in self.gpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeView:
    """A node as planning needs it. The mappings are never changed after parsing."""

    name: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: Mapping[str, int] = field(default_factory=dict)
    ready: bool = True
    partitioning: str | None = None
    """'mig', 'mps' or 'auto' from our label, else from that of another system. None: not enabled."""
    mps_replicas: int | None = None
    """Of the node's label: into how many replicas MPS shares each GPU; 0: none. None: the setting holds."""
    shared_by_gib: bool = False
    """ACK's label alone enables it: pods request GiB of its GPUs."""
    product: str = ""
    gpu_count: int = 0
    features: tuple[str, ...] = ()  # status.declaredFeatures, sorted
    operator_record: str | None = None
    """The annotation in which this controller keeps labels of the GPU Operator that it has changed."""
    capacity: Capacity = field(init=False, repr=False, compare=False)
    """Allocatable as an amount to calculate with, worked out once per object."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "capacity", Capacity.of(self.allocatable))


@dataclass(frozen=True, slots=True, kw_only=True)
class MigDesired:
    """MIG instances at exact placements, and those that users gave by count only (the agent places them)."""

    layout: Layout
    counts: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsDesired:
    """One entry per MPS slice, in the order of `partitioning.mps.in_order`, whatever the order they are given in."""

    slices: tuple[MpsSlice, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "slices", in_order(self.slices))


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeDesired:
    """The GPU is advertised whole."""


Desired = MigDesired | MpsDesired | WholeDesired


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """Partitions of one GPU that no new pod gets, so that one that has waited long gets their place."""

    uid: str
    pod: PodKey
    partitions: tuple[str, ...]
    """Ids, sorted; their holders run on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGpu:
    """One item of `spec.planned.gpus`. `uuid` is '' only where the API object has none."""

    index: int
    uuid: str
    desired: Desired
    drain: Drain | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One partition that the agent sees."""

    resource: str
    profile: str = ""
    start: int = 0
    size: int = 0
    """Memory slices from `start`; 0 for a MIG instance whose placement is not reported, as on a lost GPU."""
    memory_mib: int = 0
    state: str = PartitionState.UNKNOWN
    """One of `PartitionState`, as in `status.gpus[].partitions[].state`."""
    id: str = ""
    pod: str = ""  # namespace/name of the holder, where the agent knows it

    @property
    def used(self) -> bool:
        """Not proved free: unknown counts as used."""
        return self.state != PartitionState.FREE

    @property
    def units(self) -> int:
        """How much of its resource it is to pods: that of ACK counts GiB."""
        return self.memory_mib // MIB_PER_GIB if self.resource == ACK_MEMORY else 1

    @property
    def held(self) -> bool:
        """A pod is known to use it, so that a plan that lacks it must add it again."""
        return self.state == PartitionState.USED


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuView:
    """One GPU of `status.gpus`, with its effective desired state (`spec.gpus` wins over `spec.planned`)."""

    index: int
    uuid: str
    model: GpuModel | None
    mig_enabled: bool = False
    state: str = ""
    reason: str = ""
    partitions: tuple[PartitionView, ...] = ()
    desired: Desired | None = None
    pinned: bool = False  # `desired` comes from `spec.gpus`: users own this GPU
    settled: bool = True
    """planHash equals the hash of the effective item (or there is none), state Ready, node uid right, agent alive."""
    under_way: bool = False
    """Not settled, but expected to become `desired`: no reason from the agent yet and within its deadline."""
    backing_off: bool = False
    """Cuts of this GPU failed lately: left out of planning until the back-off is over."""
    used: tuple[PartitionView, ...] = field(init=False, repr=False, compare=False)
    free: tuple[PartitionView, ...] = field(init=False, repr=False, compare=False)
    """The partitions, divided once per object: a pass reads tens of thousands of GPUs that do not change."""
    unplaced: bool = field(init=False, repr=False, compare=False)
    """It reports a MIG instance without its placement: what is free on it is not known."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "unplaced", any(part.profile and not part.size for part in self.partitions))
        object.__setattr__(self, "used", tuple([part for part in self.partitions if part.used]))
        object.__setattr__(self, "free", tuple([part for part in self.partitions if not part.used]))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanView:
    """A node's GPUPartitionPlan. `planned` is `spec.planned.gpus` as it is stored, stale items included."""

    name: str
    uid: str = ""
    generation: int = 0
    mode: str = Mode.AUTO
    paused: bool = False
    node_uid: str = ""
    relabels: bool = False
    """Its device plugin has the node relabelled when it begins to share GPUs: gpu.product gains -SHARED."""
    by_nvidia: bool = False
    """NVIDIA's device plugin serves it: nothing is planned there for single pods."""
    agent_alive: bool = False
    write_refused: str = ""
    """The API server's sentence where it refused our last write, until we try again; '' otherwise."""
    planned: tuple[PlannedGpu, ...] = ()
    gpus: tuple[GpuView, ...] = ()
    shown: Mapping[tuple[str, str], int] = field(init=False, repr=False, compare=False)
    """How many partitions are used, per resource and holder ('' where the status names none)."""

    def __post_init__(self) -> None:
        shown: dict[tuple[str, str], int] = {}
        for gpu in self.gpus:
            for part in gpu.used:
                key = (part.resource, part.pod)
                shown[key] = shown.get(key, 0) + part.units
        object.__setattr__(self, "shown", shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerOptions:
    """What a person can turn. Effort is a count of trials, so that the result never depends on the machine."""

    scheduler_names: frozenset[str] = DEFAULT_SCHEDULERS
    """Schedulers whose pods are served; the cache writes them into each snapshot."""
    profiles: Mapping[str, FilterProfile] = field(default_factory=dict)
    """How each of these schedulers filters; one without a profile filters as kube-scheduler does by default."""
    improve_steps: int = IMPROVE_STEPS
    drains: int = DRAINS
    """How many GPUs are drained at a time for pods that have waited long."""
    drained_percent: int = DRAINED_PERCENT
    """No more than this share of the GPUs that may be cut, but always one."""
    mps_replicas: int = 0
    """Into how many equal replicas MPS shares each GPU of nodes whose labels do not say; 0: none."""
    ack_units: bool = True
    """ACK's label alone means units of GiB; else it means sized slices, as other labels do."""
    geometries: KnownGeometries | None = None
    """What an administrator allows per GPU model; None: whatever is possible."""
