"""The volume filters of kube-scheduler 1.36, as far as they can be known without asking a storage system.

Simulated: claims that are missing, lost, deleted or still unbound though their class binds at once; the node affinity
and zone labels of bound volumes; the node selected for a claim; the free volumes that a claim may get which waits for
its first consumer, and allowedTopologies of its class; ReadWriteOncePod. Not simulated, and named in `unknown`: the
capacity of storage that makes volumes, and how many volumes a node can attach. What is unknown passes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller.model.scheduling import (
    GENERAL_ZONE_LABEL,
    ZONE_LABELS,
    ClaimUse,
    ClaimView,
    FilterProfile,
    SchedulingContext,
    StorageClassView,
    VolumeView,
)
from controller.model.views import NodeView, PodView
from controller.simulator.free_volumes import Candidates, candidates
from controller.simulator.population import Place
from controller.simulator.selectors import matches_labels
from controller.simulator.verdicts import DoesNotFit, does_not_fit

RESTRICTIONS, LIMITS, BINDING, ZONE = "VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone"
VOLUME_FILTERS = frozenset({RESTRICTIONS, LIMITS, BINDING, ZONE})
NO_PROVISIONER = "kubernetes.io/no-provisioner"

_ELSEWHERE = "node(s) didn't match PersistentVolume's node affinity"
_GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
_OTHER_ZONE = does_not_fit(ZONE, "node(s) had no available volume zone")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Waiting:
    """Claims of one class that wait for their first consumer."""

    storage_class: StorageClassView
    claims: tuple[Candidates, ...]
    """The free volumes that each may take, for the smallest claim first."""
    selected: tuple[str, ...]
    """Nodes that were chosen already for others of them, for which volumes are being made there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeState:
    """One pod's volumes, looked up once. `refused`: what a PreFilter returns before any node is judged."""

    refused: DoesNotFit | None = None
    bound: tuple[VolumeView | None, ...] = ()
    """Volumes of bound claims; None: such a volume does not exist."""
    zoned: tuple[VolumeView, ...] = ()
    complaints: tuple[tuple[str, str], ...] = ()
    """What a Filter, by name, finds wrong itself where no PreFilter has reported it before."""
    waiting: tuple[_Waiting, ...] = ()
    exclusive: tuple[tuple[str, str], ...] = ()
    """Claims, by namespace and name, that one pod only may use."""
    unknown: tuple[str, ...] = ()


def look_up(pod: PodView, profile: FilterProfile, context: SchedulingContext) -> VolumeState:
    if not pod.volumes or not VOLUME_FILTERS.intersection(profile.filters + profile.prefilters):
        return VolumeState()
    if context.claims is None or context.volumes is None or context.storage_classes is None:
        return VolumeState(unknown=("its volumes: claims, volumes and storage classes are not known",))
    claims = [(use, context.claims.get((pod.namespace, use.claim))) for use in pod.volumes]
    for plugin, refuses in ((RESTRICTIONS, _missing), (BINDING, _unusable), (ZONE, _zoneless)):
        reason = refuses(pod, claims, context) if plugin in profile.prefilters else ""
        if reason:
            return VolumeState(refused=does_not_fit(plugin, reason))
    found = [(use, claim) for use, claim in claims if claim is not None]
    named = [(use.claim, claim) for use, claim in found]
    waiting = _waiting(pod.namespace, named, context.volumes, context.storage_classes)
    return VolumeState(
        bound=tuple(context.volumes.get(claim.volume) for _, claim in found if claim.bound and claim.volume),
        zoned=tuple(
            context.volumes[claim.volume]
            for use, claim in found
            if not use.ephemeral and claim.volume in context.volumes
        ),
        waiting=waiting,
        complaints=tuple(
            (plugin, reason)
            for plugin, reason in ((LIMITS, _unlimited(pod, claims)), (ZONE, _zoneless(pod, claims, context)))
            if reason
        ),
        exclusive=tuple((pod.namespace, use.claim) for use, claim in found if claim.one_pod_only and not use.ephemeral),
        unknown=_unknown(profile, waiting),
    )


def settled_volumes(pod: PodView, profile: FilterProfile, context: SchedulingContext) -> VolumeState | None:
    """What a pod's volumes ask of a node whatever else runs there; equal for pods that may use the same nodes.

    None: a claim is not bound, or one pod only may use it, or something is wrong with it.
    """
    found = look_up(pod, profile, context)
    if found.refused or found.complaints or found.waiting or found.exclusive or None in found.bound:
        return None
    if context.claims is None or context.volumes is None or context.storage_classes is None:
        return None
    affinities = (volume.node_affinity for volume in found.bound if volume is not None)
    return VolumeState(
        bound=tuple(VolumeView(node_affinity=one) for one in affinities if one is not None),
        zoned=tuple(VolumeView(zones=volume.zones) for volume in found.zoned if volume.zones),
    )


def settled_refusal(node: NodeView, state: VolumeState, profile: FilterProfile) -> DoesNotFit | None:
    """Of what `settled_volumes` has found."""
    if BINDING in profile.filters and not all(_reaches(volume, node) for volume in state.bound if volume is not None):
        return does_not_fit(BINDING, _ELSEWHERE)
    return _OTHER_ZONE if ZONE in profile.filters and not _in_zone(node, state.zoned) else None


def _waiting(
    namespace: str,
    claims: Iterable[tuple[str, ClaimView]],
    volumes: Mapping[str, VolumeView],
    classes: Mapping[str, StorageClassView],
) -> tuple[_Waiting, ...]:
    by_class: dict[str, list[tuple[str, ClaimView]]] = {}
    for name, claim in sorted(claims, key=lambda one: one[1].storage.size):
        if not claim.volume and claim.storage_class in classes:
            by_class.setdefault(claim.storage_class, []).append((name, claim))
    return tuple(
        _Waiting(
            storage_class=classes[storage_class],
            claims=tuple(
                candidates(namespace, name, claim, volumes) for name, claim in members if not claim.selected_node
            ),
            selected=tuple(claim.selected_node for _, claim in members if claim.selected_node),
        )
        for storage_class, members in by_class.items()
    )


def _unknown(profile: FilterProfile, waiting: Sequence[_Waiting]) -> tuple[str, ...]:
    limits = ("how many volumes a node can attach",) if LIMITS in profile.filters else ()
    made = any(_is_provisioned(one.storage_class) for one in waiting)
    return (*limits, "the storage that its claims wait for") if made else limits


_Claims = Sequence[tuple[ClaimUse, ClaimView | None]]


def _missing(_pod: PodView, claims: _Claims, _context: SchedulingContext) -> str:
    for use, claim in claims:
        if claim is None and not use.ephemeral:
            return _not_found(use)
    return ""


def _unusable(pod: PodView, claims: _Claims, context: SchedulingContext) -> str:
    """What VolumeBinding finds wrong with a claim wherever the pod goes."""
    for use, claim in claims:
        if claim is None and use.ephemeral:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.claim}"'
        if claim is None:
            return _not_found(use)
        if claim.lost:
            return f'persistentvolumeclaim "{use.claim}" bound to non-existent persistentvolume "{claim.volume}"'
        if claim.deleting:
            return f'persistentvolumeclaim "{use.claim}" is being deleted'
        if use.ephemeral and claim.owner_uid != pod.uid:
            return _not_its_own(pod, use)
    classes = context.storage_classes or {}
    if any(claim is not None and _should_be_bound(claim, classes) for _, claim in claims):
        return "pod has unbound immediate PersistentVolumeClaims"
    return ""


def _should_be_bound(claim: ClaimView, classes: Mapping[str, StorageClassView]) -> bool:
    if claim.bound and claim.volume:
        return False
    storage_class = classes.get(claim.storage_class)
    return bool(claim.volume) or storage_class is None or not storage_class.delayed


def _zoneless(_pod: PodView, claims: _Claims, context: SchedulingContext) -> str:
    """What VolumeZone finds wrong; mostly VolumeBinding ran before and reported it."""
    for use, claim in claims:
        if use.ephemeral:
            continue
        if claim is None:
            return _not_found(use)
        if claim.volume:
            if claim.volume not in (context.volumes or {}):
                return f'persistentvolume "{claim.volume}" not found'
            continue
        if not claim.storage_class:
            return "PersistentVolumeClaim had no pv name and storageClass name"
        storage_class = (context.storage_classes or {}).get(claim.storage_class)
        if storage_class is None:
            return f'storageclass.storage.k8s.io "{claim.storage_class}" not found'
        if not storage_class.delayed:
            return "PersistentVolume had no name"
    return ""


def _unlimited(pod: PodView, claims: _Claims) -> str:
    """What NodeVolumeLimits finds wrong; mostly VolumeBinding ran before and reported it."""
    for use, claim in claims:
        if claim is None:
            return _not_found(use)
        if use.ephemeral and claim.owner_uid != pod.uid:
            return _not_its_own(pod, use)
    return ""


def _not_its_own(pod: PodView, use: ClaimUse) -> str:
    return f"PVC {pod.namespace}/{use.claim} was not created for pod {pod.title} (pod is not owner)"


def _not_found(use: ClaimUse) -> str:
    return f'persistentvolumeclaim "{use.claim}" not found'


def volume_refusal(
    plugin: str, place: Place, state: VolumeState, users: Mapping[tuple[str, str], int]
) -> DoesNotFit | None:
    """One of VOLUME_FILTERS. `users`: how many pods use each claim, by namespace and name."""
    for name, reason in state.complaints:
        if name == plugin:
            return does_not_fit(plugin, reason)
    match plugin:
        case "VolumeRestrictions":
            return does_not_fit(RESTRICTIONS, _IN_USE) if any(users.get(key, 0) for key in state.exclusive) else None
        case "VolumeBinding":
            reasons = tuple(_binding_reasons(place.node, state))
            return DoesNotFit(plugin=BINDING, reasons=reasons) if reasons else None
        case "VolumeZone":
            return None if _in_zone(place.node, state.zoned) else _OTHER_ZONE
    return None


def _binding_reasons(node: NodeView, state: VolumeState) -> Iterable[str]:
    gone = False
    for volume in state.bound:
        if volume is None:
            gone = True
            break
        if not _reaches(volume, node):
            yield _ELSEWHERE
            break
    if any(not _can_be_served(node, each) for each in state.waiting):
        yield _NOTHING_TO_BIND
    if gone:
        yield _GONE


def _can_be_served(node: NodeView, waiting: _Waiting) -> bool:
    """By free volumes that are reachable from there, else by new ones."""
    if any(name != node.name for name in waiting.selected):
        return False
    if not waiting.selected and _all_get_one(node, waiting.claims):
        return True
    if not _is_provisioned(waiting.storage_class):
        return False
    topologies = waiting.storage_class.topologies
    return not topologies or any(terms and matches_labels(terms, node.labels) for terms in topologies)


def _all_get_one(node: NodeView, claims: Iterable[Candidates]) -> bool:
    """Each the first that is left and within reach, as the scheduler does it."""
    taken: set[str] = set()
    for each in claims:
        name = next((name for name, volume in each if name not in taken and _reaches(volume, node)), None)
        if name is None:
            return False
        taken.add(name)
    return True


def _is_provisioned(storage_class: StorageClassView) -> bool:
    return storage_class.provisioner not in ("", NO_PROVISIONER)


def _reaches(volume: VolumeView, node: NodeView) -> bool:
    """By labels alone: the scheduler ignores what a volume requires of the node's fields."""
    terms = volume.node_affinity
    return terms is None or any((t.labels or t.fields) and matches_labels(t.labels, node.labels) for t in terms)


def _in_zone(node: NodeView, volumes: Iterable[VolumeView]) -> bool:
    """A node without any zone label is in every zone."""
    if not any(label in node.labels for label in ZONE_LABELS):
        return True
    for volume in volumes:
        for label, allowed in volume.zones:
            here = node.labels.get(label, node.labels.get(GENERAL_ZONE_LABEL.get(label, label)))
            if here not in allowed:
                return False
    return True
