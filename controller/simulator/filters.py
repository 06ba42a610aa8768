"""The Filter plugins of kube-scheduler 1.36 that decide on one pod and one node.

`filter_node` asks what depends on the node object alone (cordon, name, taints, labels), `filter_room` what depends on
the pods there (ports, resources), `filter_pod` both. The first failing plugin answers, with the texts that people know
from `kubectl describe pod`. Integers only: quantities were rounded by the scheduler's rules when they were parsed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, TypeAlias

from controller.simulator.selectors import matches_node, tolerates, untolerated
from controller.simulator.usage import Usage
from controller.views import NodeView, PodView, Taint

UNSCHEDULABLE_TAINT: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
_FIRST: Final = {"cpu": 0, "memory": 1, "ephemeral-storage": 2}


@dataclass(frozen=True, slots=True)
class Fit:
    """The scheduler would bind the pod there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """Why it would not: the plugin, and each of its reasons in the scheduler's words."""

    plugin: str
    reasons: tuple[str, ...]

    @property
    def message(self) -> str:
        return ", ".join(self.reasons)


Verdict: TypeAlias = Fit | Misfit
FIT: Final = Fit()


def filter_pod(pod: PodView, node: NodeView, usage: Usage) -> Verdict:
    """All filters. `usage` holds the node's bound pods and, by `Usage.with_nominated`, the nominated ones."""
    verdict = filter_node(pod, node)
    return verdict if isinstance(verdict, Misfit) else filter_room(pod, node, usage)


def filter_node(pod: PodView, node: NodeView, *, ignored_taints: Collection[str] = ()) -> Verdict:
    """Filters that only read the node object. Taints whose key is in `ignored_taints` are taken as gone."""
    if node.unschedulable and not tolerates(pod.tolerations, UNSCHEDULABLE_TAINT):
        return Misfit(plugin="NodeUnschedulable", reasons=("node(s) were unschedulable",))
    if pod.node and pod.node != node.name:
        return Misfit(plugin="NodeName", reasons=("node(s) didn't match the requested node name",))
    taints = [taint for taint in node.taints if taint.key not in ignored_taints] if ignored_taints else node.taints
    if untolerated(pod, taints) is not None:
        return Misfit(plugin="TaintToleration", reasons=("node(s) had untolerated taint(s)",))
    if not matches_node(pod, node):
        return Misfit(plugin="NodeAffinity", reasons=("node(s) didn't match Pod's node affinity/selector",))
    return FIT


def filter_room(pod: PodView, node: NodeView, usage: Usage) -> Verdict:
    """Filters that read what the pods of the node hold."""
    if pod.host_ports and usage.conflicts(pod.host_ports):
        return Misfit(plugin="NodePorts", reasons=("node(s) didn't have free ports for the requested pod ports",))
    lacking = []
    if usage.pods + 1 > node.allocatable.get("pods", 0):
        lacking.append("Too many pods")
    for resource, amount in sorted(pod.requests, key=_as_the_scheduler_asks):
        if amount > node.allocatable.get(resource, 0) - usage.requested.get(resource, 0):
            lacking.append(f"Insufficient {resource}")
    return Misfit(plugin="NodeResourcesFit", reasons=tuple(lacking)) if lacking else FIT


def _as_the_scheduler_asks(request: tuple[str, int]) -> tuple[int, str]:
    return (_FIRST.get(request[0], len(_FIRST)), request[0])
