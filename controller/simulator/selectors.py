"""Matches taints to tolerations, labels to selectors, nodes to required node affinity.

The rules are those of `k8s.io/component-helpers/scheduling/corev1` and of label selectors in `k8s.io/apimachinery`, as
kube-scheduler 1.36 uses them. A term that the API server would have refused matches nothing. Pure functions of one pod
and one node; what else runs on the node does not matter here.
"""

import re
from collections.abc import Iterable, Mapping

from controller.model.scheduling import LabelSelector, NodeSelectorTerm, Requirement, Taint, Toleration
from controller.model.views import NodeView, PodView

REPELLING_EFFECTS = ("NoSchedule", "NoExecute")
NODE_NAME_FIELD = "metadata.name"
_INTEGER = re.compile(r"[+-]?[0-9]{1,63}")
_LARGEST = 2**63
_FEW_TERMS = 8
_KEPT_INDEXES = 256
_TermsByLabel = dict[tuple[str, str] | None, list[NodeSelectorTerm]]
_indexes: dict[int, tuple[tuple[NodeSelectorTerm, ...], _TermsByLabel]] = {}
"""Of long lists of terms, by identity: to compare two lists would take as long as to try them."""


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Gt and Lt (an alpha feature) count as not tolerating."""
    return any(_tolerates_one(toleration, taint) for toleration in tolerations)


def _tolerates_one(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
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


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """None selects nothing, an empty selector everything."""
    return selector is not None and all(_holds(requirement, labels) for requirement in selector.requirements)


def matches_node(pod: PodView, node: NodeView) -> bool:
    """nodeSelector and one term of the required node affinity."""
    labels = node.labels
    if any(labels.get(key) != value for key, value in pod.node_selector):
        return False
    return pod.node_affinity is None or matches_terms(pod.node_affinity, node)


def matches_terms(terms: tuple[NodeSelectorTerm, ...], node: NodeView) -> bool:
    """One of the terms is enough; without any, no node matches."""
    if len(terms) <= _FEW_TERMS:
        return any(_term_matches(term, node) for term in terms)
    index = _index(terms)
    pairs = (None, (NODE_NAME_FIELD, node.name), *node.labels.items())
    return any(_term_matches(term, node) for pair in pairs for term in index.get(pair, ()))


def _index(terms: tuple[NodeSelectorTerm, ...]) -> _TermsByLabel:
    known = _indexes.get(id(terms))
    if known is None or known[0] is not terms:
        if len(_indexes) >= _KEPT_INDEXES:
            _indexes.pop(next(iter(_indexes)))
        known = _indexes[id(terms)] = (terms, _by_label(terms))
    return known[1]


def tried_on_each(terms: tuple[NodeSelectorTerm, ...]) -> int:
    """How many requirements may have to be tried on every node, whatever its labels are."""
    found = terms if len(terms) <= _FEW_TERMS else _index(terms).get(None, ())
    return sum(len(term.labels) + len(term.fields) for term in found)


def _by_label(terms: Iterable[NodeSelectorTerm]) -> _TermsByLabel:
    """Terms by a label, or the name, that a node must have; of those that few values tell not, by None."""
    found: _TermsByLabel = {}
    for term in terms:
        named = [one for one in term.fields if one.key == NODE_NAME_FIELD]
        pinned = [one for one in (*term.labels, *named) if one.operator == "In" and len(one.values) <= _FEW_TERMS]
        first = min(pinned, key=lambda one: len(one.values), default=None)
        for pair in [(first.key, value) for value in dict.fromkeys(first.values)] if first is not None else [None]:
            found.setdefault(pair, []).append(term)
    return found


def matches_labels(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """All of them hold."""
    return all(_holds(requirement, labels) for requirement in requirements)


def named_nodes(pod: PodView) -> frozenset[str] | None:
    """The nodes that the required affinity names, so that no other needs to be checked; None: it does not narrow them.

    Empty where the names contradict each other.
    """
    if not pod.node_affinity:
        return None
    names: set[str] = set()
    for term in pod.node_affinity:
        lists = [set(one.values) for one in term.fields if one.key == NODE_NAME_FIELD and one.operator == "In"]
        if not lists:
            return None
        names |= set.intersection(*lists)
    return frozenset(names)


def _term_matches(term: NodeSelectorTerm, node: NodeView) -> bool:
    if not term.labels and not term.fields:
        return False
    return matches_labels(term.labels, node.labels) and all(
        _field_holds(requirement, node.name) for requirement in term.fields
    )


def _field_holds(requirement: Requirement, name: str) -> bool:
    """Fields know In and NotIn, with one value. The node's name is the only field there is; others are empty."""
    if len(requirement.values) != 1:
        return False
    found = name if requirement.key == NODE_NAME_FIELD else ""
    match requirement.operator:
        case "In":
            return found == requirement.values[0]
        case "NotIn":
            return found != requirement.values[0]
    return False


def _holds(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.allowed
        case "NotIn":
            return bool(requirement.values) and (value is None or value not in requirement.allowed)
        case "Exists":
            return value is not None and not requirement.values
        case "DoesNotExist":
            return value is None and not requirement.values
        case "Gt" | "Lt":
            return value is not None and _compares(requirement, value)
    return False


def _compares(requirement: Requirement, value: str) -> bool:
    if len(requirement.values) != 1:
        return False
    here, limit = _integer(value), _integer(requirement.values[0])
    if here is None or limit is None:
        return False
    return here > limit if requirement.operator == "Gt" else here < limit


def _integer(text: str) -> int | None:
    """As Go reads 64 bits: no blanks, no underscores, no other digits."""
    if _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -_LARGEST <= number < _LARGEST else None
