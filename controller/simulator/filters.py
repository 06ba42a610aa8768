"""The Filter plugins of kube-scheduler 1.36 that judge one pod and one node.

`filter_node` checks what depends on the node object alone (cordon, name, taints, labels, features), `room_refusal` what
depends on the pods there (ports, resources); filters that read other nodes are in `ClusterState`. Each returns the
first failing plugin, in the order of the scheduler's profile, with the texts of `kubectl describe pod`.
Integers only: quantities were rounded by the scheduler's rules when they were parsed.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from controller.model.capacity import NOTHING, Capacity, needs_of
from controller.model.scheduling import DEFAULT_PROFILE, FilterProfile, Taint
from controller.model.views import NodeView, PodView
from controller.simulator.selectors import matches_node, matches_terms, named_nodes, tolerates, untolerated
from controller.simulator.usage import Usage
from controller.simulator.verdicts import FIT, DoesNotFit, Verdict, does_not_fit

UNSCHEDULABLE_TAINT: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
NODE_FILTERS: Final = frozenset(
    {"NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "NodeDeclaredFeatures"}
)
ROOM_FILTERS: Final = frozenset({"NodePorts", "NodeResourcesFit"})
STATEFUL: Final = frozenset(
    {
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "VolumeBinding",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeDeclaredFeatures",
    }
)
"""Their Filter fails for every pod where the profile enables it without their PreFilter."""
_NATIVE: Final = "kubernetes.io/"
_AFFINITY: Final = does_not_fit("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
ENFORCED: Final = does_not_fit("NodeAffinity", "node(s) didn't match scheduler-enforced node affinity")
_UNSCHEDULABLE: Final = does_not_fit("NodeUnschedulable", "node(s) were unschedulable")
_NAME: Final = does_not_fit("NodeName", "node(s) didn't match the requested node name")
_TAINTED: Final = does_not_fit("TaintToleration", "node(s) had untolerated taint(s)")
_FEATURES: Final = does_not_fit("NodeDeclaredFeatures", "node(s) didn't match Pod's required features")
_PORTS: Final = does_not_fit("NodePorts", "node(s) didn't have free ports for the requested pod ports")


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """What is taken for granted about the scheduler and the node."""

    profile: FilterProfile = DEFAULT_PROFILE
    ignored_taints: frozenset[str] = frozenset()
    """Keys of taints that are taken as gone."""
    dra_resources: frozenset[str] = frozenset()
    """Resources that DRA serves where the node has none of them."""


def filter_node(
    pod: PodView, node: NodeView, *, ignored_taints: Collection[str] = (), profile: FilterProfile = DEFAULT_PROFILE
) -> Verdict:
    """Filters that only read the node object. Taints whose key is in `ignored_taints` are taken as gone."""
    refusal = not_narrowed_to(pod, node, profile)
    if refusal is not None:
        return refusal
    given = Assumptions(profile=profile, ignored_taints=frozenset(ignored_taints))
    for plugin in profile.filters:
        if plugin in NODE_FILTERS:
            refusal = without_state(plugin, profile) or node_refusal(plugin, pod, node, given)
            if refusal is not None:
                return refusal
    return FIT


def not_narrowed_to(pod: PodView, node: NodeView, profile: FilterProfile) -> DoesNotFit | None:
    """PreFilter of NodeAffinity: an affinity that names nodes keeps all others out, even where its Filter is off."""
    if not pod.node_affinity or "NodeAffinity" not in profile.prefilters or "NodeAffinity" in profile.filters:
        return None
    names = named_nodes(pod)
    return None if names is None or node.name in names else _AFFINITY


def without_state(plugin: str, profile: FilterProfile) -> DoesNotFit | None:
    """What a Filter returns whose PreFilter is switched off."""
    if plugin not in STATEFUL or plugin in profile.prefilters:
        return None
    return does_not_fit(plugin, f'running "{plugin}" filter plugin: no state from its PreFilter')


@lru_cache(maxsize=64)
def fails_always(profile: FilterProfile) -> DoesNotFit | None:
    """What keeps every pod off every node where a Filter is on and its PreFilter off."""
    found = (without_state(plugin, profile) for plugin in profile.filters)
    return next((refusal for refusal in found if refusal is not None), None)


def node_refusal(plugin: str, pod: PodView, node: NodeView, given: Assumptions) -> DoesNotFit | None:
    """One of NODE_FILTERS."""
    match plugin:
        case "NodeUnschedulable":
            kept_off = node.unschedulable and not tolerates(pod.tolerations, UNSCHEDULABLE_TAINT)
            return _UNSCHEDULABLE if kept_off else None
        case "NodeName":
            return _NAME if pod.node and pod.node != node.name else None
        case "TaintToleration":
            if not node.taints:
                return None
            gone = given.ignored_taints
            taints = [taint for taint in node.taints if taint.key not in gone] if gone else node.taints
            return _TAINTED if untolerated(pod, taints) is not None else None
        case "NodeDeclaredFeatures":
            return _FEATURES if pod.features and not set(pod.features).issubset(node.features) else None
        case _:
            added = given.profile.added_affinity
            if added is not None and not matches_terms(added, node):
                return ENFORCED
            return None if matches_node(pod, node) else _AFFINITY


def room_refusal(plugin: str, pod: PodView, node: NodeView, usage: Usage, given: Assumptions) -> DoesNotFit | None:
    """One of ROOM_FILTERS."""
    if plugin == "NodePorts":
        return _PORTS if pod.host_ports and any(usage.conflicting(pod.host_ports)) else None
    capacity = node.capacity
    short = capacity.short_of(needs_of(pod.requests), held=usage.held)
    if not short:
        return None
    reasons = tuple(
        "Too many pods" if resource == "pods" else f"Insufficient {resource}"
        for resource in short
        if not _ignored(resource, given.profile) and (capacity[resource] > 0 or resource not in given.dra_resources)
    )
    return DoesNotFit(plugin="NodeResourcesFit", reasons=reasons) if reasons else None


@lru_cache(maxsize=4096)
def compared(needs: Capacity, profile: FilterProfile) -> Capacity:
    """Of what a pod needs of a node, what the scheduler compares with the room there, whichever node it is."""
    if "NodeResourcesFit" not in profile.filters:
        return NOTHING
    other = tuple(pair for pair in needs.other if not _ignored(pair[0], profile))
    return needs if len(other) == len(needs.other) else replace(needs, other=other)


def _ignored(resource: str, profile: FilterProfile) -> bool:
    """Extended resources only: cpu, memory and everything of kubernetes.io are always compared."""
    if "/" not in resource or _NATIVE in resource:
        return False
    return resource in profile.ignored_resources or resource.partition("/")[0] in profile.ignored_groups
