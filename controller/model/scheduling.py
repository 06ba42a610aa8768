"""The values that kube-scheduler's rules are made of: selectors, terms, constraints, volumes, and one profile of it.

`controller.api.scheduling_rules` makes them from raw JSON once per watch event, `controller.config.scheduler_config`
makes the profiles, and `controller.simulator` evaluates them. Everything is frozen and, but for the maps of a
`SchedulingContext`, hashable, so that equal pods can be found by comparison. Nothing here decides anything.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

_FEW = 8

Labels = tuple[tuple[str, str], ...]
"""Sorted by key."""

GENERAL_ZONE_LABEL: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""The label that replaced each of the old ones."""
ZONE_LABELS: Final = (*GENERAL_ZONE_LABEL, *GENERAL_ZONE_LABEL.values())
"""Labels that give the location of volumes and nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toleration:
    """`operator` is 'Equal' (also when the pod gives none) or 'Exists'; empty key or effect matches all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One matchExpression or matchField: In, NotIn, Exists, DoesNotExist; on nodes Gt and Lt as well."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    allowed: Collection[str] = field(init=False, repr=False, compare=False)
    """The values, to look one up: a user may give tens of thousands."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "allowed", looked_up(self.values))


def looked_up(names: tuple[str, ...]) -> Collection[str]:
    """To find a name among many in no more time than among few."""
    return names if len(names) <= _FEW else frozenset(names)


MALFORMED: Final = "malformed"
"""The operator of a requirement that the scheduler cannot read: nothing satisfies it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelectorTerm:
    """All of its requirements must hold; a term without any matches nothing."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSelector:
    """All of its requirements must hold; without any it matches everything. matchLabels are requirements, too."""

    requirements: tuple[Requirement, ...] = ()

    @property
    def readable(self) -> bool:
        return all(requirement.operator != MALFORMED for requirement in self.requirements)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class HostPort:
    ip: str = "0.0.0.0"
    protocol: str = "TCP"
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodAffinityTerm:
    """A required term of pod affinity or anti-affinity.

    `namespaces` holds the pod's own where the term names none and has no `namespace_selector`. A selector that is None
    matches nothing.
    """

    topology_key: str
    selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    named: Collection[str] = field(init=False, repr=False, compare=False)
    """Its namespaces, to look one up."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "named", looked_up(self.namespaces))


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadConstraint:
    """A topology spread constraint; its matchLabelKeys are part of `selector` already."""

    topology_key: str
    max_skew: int = 1
    selector: LabelSelector | None = None
    min_domains: int = 1
    honors_affinity: bool = True
    honors_taints: bool = False
    hard: bool = True
    """DoNotSchedule. Others never filter; that a pod has one keeps the default constraints away from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimUse:
    """A pod's volume that is backed by a PersistentVolumeClaim. `ephemeral`: made for this pod from its template."""

    claim: str
    ephemeral: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """What a claim requests, or a volume has. `size` in bytes; `block`: a raw device, not a file system."""

    size: int = 0
    modes: tuple[str, ...] = ()
    block: bool = False
    attributes_class: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimView:
    """A PersistentVolumeClaim. `volume` may be named before `bound` (the annotation bind-completed) is set."""

    volume: str = ""
    bound: bool = False
    storage_class: str = ""
    selected_node: str = ""
    lost: bool = False
    deleting: bool = False
    one_pod_only: bool = False
    """Access mode ReadWriteOncePod."""
    owner_uid: str = ""
    """Of the controlling owner, which is the pod for an ephemeral volume."""
    uid: str = ""
    storage: Storage = Storage()
    selector: LabelSelector | None = None
    """Of volumes, by their labels; None: any will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeView:
    """A PersistentVolume. `zones`: its topology labels, each with the values that it allows."""

    node_affinity: tuple[NodeSelectorTerm, ...] | None = None
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()
    storage_class: str = ""
    available: bool = False
    """No claim has it yet, so that a claim of its class may get it."""
    claim: tuple[str, str, str] | None = None
    """Namespace, name and uid ('': any) of the claim that it is kept for, or bound to."""
    storage: Storage = Storage()
    labels: Labels = ()
    deleting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClassView:
    """`topologies`: one of these lists of requirements must hold for a node; none at all: every node will do."""

    delayed: bool = False
    """WaitForFirstConsumer."""
    provisioner: str = ""
    topologies: tuple[tuple[Requirement, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingContext:
    """What filters read besides pods and nodes. A map that is None could not be read: what needs it is unknown."""

    namespaces: Mapping[str, Mapping[str, str]] | None = None
    """Labels by name."""
    claims: Mapping[tuple[str, str], ClaimView] | None = None
    """By namespace and name."""
    volumes: Mapping[str, VolumeView] | None = None
    storage_classes: Mapping[str, StorageClassView] | None = None
    services: Mapping[tuple[str, str], Labels] | None = None
    """Selectors by namespace and name; for default constraints only."""
    workloads: Mapping[tuple[str, str, str], LabelSelector] | None = None
    """Selectors of ReplicaSets and the like, by kind, namespace and name; for default constraints only."""
    pod_groups: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    """By API group, namespace and name: how many pods must start together; 0: each may start by itself."""
    dra_resources: frozenset[str] = frozenset()
    """Extended resources that a DeviceClass maps: DRA serves them where no device plugin does."""


FILTERS: Final = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "DynamicResources",
    "NodeDeclaredFeatures",
)
"""Filter plugins that kube-scheduler 1.36 enables by default, in the order in which they run."""

PREFILTERS: Final = FILTERS[3:]
"""Those of them that examine the pod before any node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterProfile:
    """What one profile of a kube-scheduler filters by."""

    scheduler_name: str = "default-scheduler"
    filters: tuple[str, ...] = FILTERS
    """In the order in which they run: the first that refuses is named."""
    prefilters: tuple[str, ...] = PREFILTERS
    added_affinity: tuple[NodeSelectorTerm, ...] | None = None
    ignored_resources: frozenset[str] = frozenset()
    ignored_groups: frozenset[str] = frozenset()
    default_spread: tuple[SpreadConstraint, ...] = ()
    """Only of defaultingType List, and only hard ones; their selectors come from services and workloads."""
    unknown: tuple[str, ...] = ()
    """Plugins and extenders that cannot be simulated: they count as passing."""


DEFAULT_PROFILE: Final = FilterProfile()

SchedulerProfiles = Mapping[str, FilterProfile]
"""By schedulerName."""

NO_CONTEXT: Final = SchedulingContext()
