"""Short names for the simulator's tests: raw objects as the API server has them, read as the controller reads them."""

from collections.abc import Iterable, Mapping
from typing import Any

from controller.model.scheduling import NO_CONTEXT, FilterProfile, SchedulingContext
from controller.model.views import NodeView, PodView
from controller.simulator.cluster import ClusterState
from tests.builders.objects import Json, node, pod
from tests.builders.views import node_view, pod_view

HOST = "kubernetes.io/hostname"
ZONE = "zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def a_node(name: str, *, taints: Iterable[Json] = (), at: Mapping[str, str] | None = None, **labels: str) -> NodeView:
    """Room for every pod; labelled with its own name and these."""
    return node_view(node(name, labels={HOST: name, **labels, **(at or {})}, spec={"taints": list(taints)}))


def a_pod(
    name: str,
    labels: Mapping[str, str] | None = None,
    *,
    namespace: str = "team",
    on: str = "",
    spec: Mapping[str, Any] | None = None,
    **metadata: Any,
) -> PodView:
    found = {"labels": labels or {}, **metadata}
    return pod_view(pod(name, namespace=namespace, requests={}, node=on, metadata=found, **(spec or {})))


def affinity(*terms: Json, anti: bool = False) -> Json:
    """A pod's spec with required terms."""
    return {"affinity": {"podAntiAffinity" if anti else "podAffinity": {REQUIRED: list(terms)}}}


def near(app: str | None = "web", key: str = ZONE, **more: Any) -> Json:
    """A term for pods of an app; None: any pod."""
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}} if app else {}, **more}


def spread(key: str = ZONE, *, app: str = "web", skew: int = 1, hard: bool = True, **more: Any) -> Json:
    return {
        "topologyKey": key,
        "maxSkew": skew,
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": app}},
        **more,
    }


def state(
    nodes: Iterable[NodeView],
    pods: Iterable[PodView] = (),
    *,
    context: SchedulingContext = NO_CONTEXT,
    profile: FilterProfile | None = None,
) -> ClusterState:
    profiles = {profile.scheduler_name: profile} if profile is not None else {}
    return ClusterState(nodes, pods, context=context, profiles=profiles)


def verdicts(cluster: ClusterState, pod: PodView, *nodes: str) -> list[str]:
    """Per node '' for a fit, else the plugin and its message."""
    found = [cluster.why_not(pod, node) for node in nodes]
    return ["" if one is None else f"{one.plugin}: {one.message}" for one in found]


def fits(cluster: ClusterState, pod: PodView, *nodes: str) -> list[str]:
    """The nodes that the pod fits."""
    return [node for node in nodes if cluster.why_not(pod, node) is None]
