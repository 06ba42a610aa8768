"""Taints against tolerations, and node labels against selectors and required node affinity.

The rules are those of `k8s.io/component-helpers/scheduling/corev1`, as kube-scheduler 1.36 uses them. Pure questions
about one pod and one node; what else runs on the node does not matter here.
"""

from collections.abc import Iterable, Mapping

from controller.views import NodeSelectorTerm, NodeView, PodView, Requirement, Taint, Toleration

REPELLING_EFFECTS = ("NoSchedule", "NoExecute")
NODE_NAME_FIELD = "metadata.name"


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Gt and Lt (an alpha feature) count as not tolerating."""
    return any(_tolerates_one(toleration, taint) for toleration in tolerations)


def _tolerates_one(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def untolerated(pod: PodView, taints: Iterable[Taint]) -> Taint | None:
    """The first taint that keeps the pod off; PreferNoSchedule never does."""
    for taint in taints:
        if taint.effect in REPELLING_EFFECTS and not tolerates(pod.tolerations, taint):
            return taint
    return None


def matches_node(pod: PodView, node: NodeView) -> bool:
    """nodeSelector and one term of the required node affinity."""
    labels = node.labels
    if any(labels.get(key) != value for key, value in pod.node_selector):
        return False
    if pod.node_affinity is None:
        return True
    return any(_term_matches(term, node) for term in pod.node_affinity)


def _term_matches(term: NodeSelectorTerm, node: NodeView) -> bool:
    if not term.labels and not term.fields:
        return False
    fields = {NODE_NAME_FIELD: node.name}
    return all(_holds(requirement, node.labels) for requirement in term.labels) and all(
        _holds(requirement, fields) for requirement in term.fields
    )


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return value is not None and _compares(requirement, value)
    return False


def _compares(requirement: Requirement, value: str) -> bool:
    if len(requirement.values) != 1:
        return False
    try:
        here, limit = int(value), int(requirement.values[0])
    except ValueError:
        return False
    return here > limit if requirement.operator == "Gt" else here < limit
