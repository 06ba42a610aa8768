"""Nodes that the pending pods cannot tell apart, and which of these groups each pod may use.

In go nodes and pods, out come group numbers per node and, per pod, the groups whose nodes pass kube-scheduler's
filters on the node object. Filters run once per kind of pod and kind of node, never per pair: of a node's labels only
those count that some selector names. Our own taint of a node in change is taken as gone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from controller.simulator import Fit, filter_node
from controller.views import NodeView, PodView

CHANGING_TAINT = "gpuplan.dev/changing"
IGNORED_TAINTS = frozenset({CHANGING_TAINT})
"""Set by the agent while slices are withdrawn; it goes by itself, so it keeps nobody off a plan."""


def constraints_of(pod: PodView) -> Hashable:
    """Pods with equal constraints may use the same nodes."""
    return (pod.tolerations, pod.node_selector, pod.node_affinity)


class NodeGroups:
    """Groups are numbered in the order of their first node. Nodes that no pod may use are in group -1."""

    def __init__(self, nodes: Sequence[NodeView], pods: Iterable[PodView]) -> None:
        kinds: dict[Hashable, PodView] = {}
        for pod in pods:
            kinds.setdefault(constraints_of(pod), pod)
        keys, by_name = _selected_labels(kinds.values())
        numbers: dict[tuple[bool, ...], int] = {}
        number_of_facts: dict[Hashable, int] = {}
        self.group_of: list[int] = []
        for node in nodes:
            facts = _facts(node, keys, by_name)
            if facts not in number_of_facts:
                verdicts = tuple(may_use(pod, node) for pod in kinds.values())
                number_of_facts[facts] = numbers.setdefault(verdicts, len(numbers)) if any(verdicts) else -1
            self.group_of.append(number_of_facts[facts])
        self.count = len(numbers)
        self._allowed = {
            kind: tuple(number for verdicts, number in numbers.items() if verdicts[position])
            for position, kind in enumerate(kinds)
        }

    def allowed(self, pod: PodView) -> tuple[int, ...]:
        """The groups that a pod may use, in rising order."""
        return self._allowed[constraints_of(pod)]


def may_use(pod: PodView, node: NodeView) -> bool:
    return isinstance(filter_node(pod, node, ignored_taints=IGNORED_TAINTS), Fit)


def _selected_labels(pods: Iterable[PodView]) -> tuple[list[str], bool]:
    """Label keys that any pod selects by, and whether any selects by the node's name."""
    keys: set[str] = set()
    by_name = False
    for pod in pods:
        keys.update(key for key, _ in pod.node_selector)
        for term in pod.node_affinity or ():
            keys.update(requirement.key for requirement in term.labels)
            by_name = by_name or bool(term.fields)
    return sorted(keys), by_name


def _facts(node: NodeView, keys: Sequence[str], by_name: bool) -> Hashable:
    labels = tuple(node.labels.get(key) for key in keys)
    return (node.unschedulable, node.taints, labels, node.name if by_name else "")
