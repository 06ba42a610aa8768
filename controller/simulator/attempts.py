"""What filters must know of a pod before they examine a node: kube-scheduler's PreFilter, once per kind of pod.

Takes a pod, its scheduler's profile and the population, and returns an Attempt that stays true while its caller adds
and removes pods. Pods with equal `filter_key` share one. What cannot be known is named in `unknown`.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace

from controller.model.scheduling import FilterProfile, LabelSelector, Requirement, SchedulingContext, SpreadConstraint
from controller.model.views import PodView
from controller.simulator import affinity, spread
from controller.simulator.affinity import AffinityState
from controller.simulator.changes import Interest, interest_in
from controller.simulator.population import Population, Resident, TooManyVisitsError
from controller.simulator.selectors import named_nodes
from controller.simulator.spread import SpreadState
from controller.simulator.verdicts import DoesNotFit, does_not_fit
from controller.simulator.volumes import VolumeState, look_up

_CONFLICT = does_not_fit("NodeAffinity", "pod affinity terms conflict")
TOO_MUCH = does_not_fit(affinity.PLUGIN, "too many pods to compare")
"""Its terms would have to be compared with too many pods."""
_UNREADABLE = "pod has a label selector that cannot be read"
_NO_PODS: dict[str, dict[str, str]] = {}


@dataclass(slots=True, eq=False, kw_only=True)
class Attempt:
    """One kind of pod in front of the cluster."""

    profile: FilterProfile
    refused: DoesNotFit | None
    """Why no node will do, whichever it is."""
    spread: SpreadState | None
    affinity: AffinityState | None
    volumes: VolumeState
    unknown: tuple[str, ...]
    """What the scheduler will judge and we cannot: plan the pod last, and take no refusal as proved."""
    size: int = 1
    """About how many numbers it holds."""
    cost: int = 0
    """What it takes to make it again."""
    seen: int = 0
    """How many changes of the population it has received."""
    interest: Interest | None = None
    """Which of the changes concern it; None: any may."""

    @property
    def refusals_hold(self) -> Hashable:
        """While it is equal and pods are only added, a pod that was refused would be refused again."""
        leasts = self.spread.leasts if self.spread is not None else ()
        return (leasts, self.affinity.attractions if self.affinity is not None else 0)

    def count(self, resident: Resident, number: int) -> None:
        """A pod came (1) or went (-1)."""
        if self.spread is not None:
            self.spread.count(resident, number)
        if self.affinity is not None:
            self.affinity.count(resident, number)


def filter_key(pod: PodView, profile: FilterProfile) -> Hashable:
    """Equal for pods that fit where the other fits, but for what they request."""
    own_volumes = pod.uid if any(use.ephemeral for use in pod.volumes) else ""
    owner = (pod.owner_kind, pod.owner_name) if profile.default_spread and not pod.spread else None
    return (
        pod.scheduler_name,
        pod.namespace,
        pod.labels,
        pod.affinity,
        pod.anti_affinity,
        pod.spread,
        pod.tolerations,
        pod.node_selector,
        pod.node_affinity,
        pod.volumes,
        own_volumes,
        owner,
    )


def attempt_for(
    pod: PodView,
    profile: FilterProfile,
    population: Population,
    context: SchedulingContext,
    most_visits: int | None = None,
) -> Attempt:
    """`most_visits`: how many pods and terms may be looked at for it; None: as many as it takes."""
    begun = population.visits
    population.most_visits = None if most_visits is None else begun + most_visits
    try:
        attempt = _attempt(pod, profile, population, context)
    except TooManyVisitsError:
        attempt = Attempt(
            profile=profile,
            refused=TOO_MUCH,
            spread=None,
            affinity=None,
            volumes=look_up(pod, profile, context),
            unknown=(),
        )
    finally:
        population.most_visits = None
    attempt.cost = attempt.size + population.visits - begun
    return attempt


def _attempt(pod: PodView, profile: FilterProfile, population: Population, context: SchedulingContext) -> Attempt:
    volumes = look_up(pod, profile, context)
    constraints: tuple[SpreadConstraint, ...] = ()
    if spread.PLUGIN in profile.filters and spread.PLUGIN in profile.prefilters:
        constraints = hard_constraints(pod, profile, context)
    refused = _CONFLICT if "NodeAffinity" in profile.prefilters and named_nodes(pod) == frozenset() else None
    refused = refused or volumes.refused or _unreadable(pod, profile)
    among_pods = affinity.PLUGIN in profile.filters and affinity.PLUGIN in profile.prefilters
    namespaces = context.namespaces if context.namespaces is not None else _NO_PODS
    spreading = SpreadState(pod, constraints, population) if constraints else None
    among = AffinityState(pod, population, namespaces) if among_pods else None
    counted = (*(spreading.counted if spreading else ()), *(among.counted if among else ()))
    return Attempt(
        profile=profile,
        refused=refused,
        spread=spreading,
        affinity=among,
        volumes=volumes,
        unknown=(*volumes.unknown, *_unknown(pod, profile, context)),
        size=1 + (spreading.size if spreading else 0),
        interest=interest_in(counted, dict(pod.labels)),
    )


def _unreadable(pod: PodView, profile: FilterProfile) -> DoesNotFit | None:
    """A selector that no API server of today takes, from times when one did: the scheduler never gets past it."""
    terms = (*pod.affinity, *pod.anti_affinity)
    by_plugin = {
        spread.PLUGIN: [each.selector for each in pod.spread if each.hard],
        affinity.PLUGIN: [selector for term in terms for selector in (term.selector, term.namespace_selector)],
    }
    for plugin, selectors in by_plugin.items():
        if plugin in profile.prefilters and not all(one is None or one.readable for one in selectors):
            return does_not_fit(plugin, _UNREADABLE)
    return None


def hard_constraints(pod: PodView, profile: FilterProfile, context: SchedulingContext) -> tuple[SpreadConstraint, ...]:
    """The pod's own, or the profile's default ones where it has none at all and something selects it."""
    if pod.spread or not profile.default_spread:
        return tuple(constraint for constraint in pod.spread if constraint.hard)
    selector = _default_selector(pod, context)
    if not selector.requirements:
        return ()
    return tuple(replace(constraint, selector=selector) for constraint in profile.default_spread)


def _default_selector(pod: PodView, context: SchedulingContext) -> LabelSelector:
    """What the services that select the pod, and its owner, select by."""
    labels = dict(pod.labels)
    merged: dict[str, str] = {}
    for (namespace, _), selected in sorted((context.services or {}).items()):
        if namespace == pod.namespace and selected and all(labels.get(key) == value for key, value in selected):
            merged.update(selected)
    owner = (context.workloads or {}).get((pod.owner_kind, pod.namespace, pod.owner_name))
    return LabelSelector(
        requirements=(
            *(Requirement(key=key, operator="In", values=(value,)) for key, value in sorted(merged.items())),
            *(owner.requirements if owner is not None else ()),
        )
    )


def _unknown(pod: PodView, profile: FilterProfile, context: SchedulingContext) -> list[str]:
    unknown = []
    terms = (*pod.affinity, *pod.anti_affinity)
    if context.namespaces is None and any(term.namespace_selector is not None for term in terms):
        unknown.append("the labels of namespaces")
    if profile.default_spread and not pod.spread and (context.services is None or context.workloads is None):
        unknown.append("what selects the pod, for the profile's default spread constraints")
    if pod.claims or any(resource in context.dra_resources for resource, _ in pod.requests):
        unknown.append("what DRA allocates")
    return unknown
