"""Parses the scheduling rules of a pod: selectors, affinity terms, spread constraints, volumes.

Takes parts of an object as the API server sent it and returns values of `controller.model.scheduling`. Whatever is
malformed raises, and `reading.readable` turns that into a reason. What the API server fills in when a pod is created
(matchLabelKeys of affinity terms, host ports of the host network) is filled in here where it is missing, so that a
manifest from a file reads like the pod that it becomes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from sys import intern
from typing import Any

from controller.model.scheduling import (
    MALFORMED,
    ClaimUse,
    HostPort,
    Labels,
    LabelSelector,
    NodeSelectorTerm,
    PodAffinityTerm,
    Requirement,
    SpreadConstraint,
    Toleration,
)

Raw = Mapping[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
LABEL_VALUE = re.compile(r"(?=.{0,63}\Z)([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")


def labels(metadata: Raw) -> Labels:
    """Thousands of pods carry the same few labels: equal ones are one object."""
    given = metadata.get("labels")
    return _shared(tuple(sorted((intern(key), value) for key, value in given.items()))) if given else ()


@lru_cache(maxsize=16_384)
def _shared(found: Labels) -> Labels:
    return found


def tolerations(spec: Raw) -> tuple[Toleration, ...]:
    return tuple(
        Toleration(
            key=entry.get("key") or "",
            operator=entry.get("operator") or "Equal",
            value=entry.get("value") or "",
            effect=entry.get("effect") or "",
        )
        for entry in spec.get("tolerations") or ()
    )


def host_ports(spec: Raw) -> tuple[HostPort, ...]:
    return tuple(sorted(_host_ports(spec)))


def _host_ports(spec: Raw) -> Iterator[HostPort]:
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    for container in (*(spec.get("containers") or ()), *sidecars):
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (port.get("containerPort") if spec.get("hostNetwork") else None)
            if number:
                yield HostPort(ip=port.get("hostIP") or "0.0.0.0", protocol=port.get("protocol") or "TCP", port=number)


def features_needed(spec: Raw) -> tuple[str, ...]:
    """What a node must declare before the scheduler of 1.36 puts the pod there, sorted."""
    needed = []
    containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    if any(rule.get("action") == "RestartAllContainers" for each in containers for rule in _restart_rules(each)):
        needed.append("RestartAllContainersOnContainerExits")
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        needed.append("UserNamespacesHostNetworkSupport")
    return tuple(needed)


def _restart_rules(container: Raw) -> Iterable[Raw]:
    return container.get("restartPolicyRules") or ()


def node_affinity(spec: Raw) -> tuple[NodeSelectorTerm, ...] | None:
    """The required node affinity of a pod; None where there is none."""
    return required_terms((spec.get("affinity") or {}).get("nodeAffinity"))


def required_terms(affinity: Raw | None) -> tuple[NodeSelectorTerm, ...] | None:
    """The required terms of a node affinity."""
    required = (affinity or {}).get(REQUIRED)
    return None if required is None else node_selector(required)


def node_selector(raw: Raw) -> tuple[NodeSelectorTerm, ...]:
    """The terms of a NodeSelector, one of which must match."""
    return tuple(
        NodeSelectorTerm(
            labels=requirements(term.get("matchExpressions")),
            fields=tuple(_requirement(entry) for entry in term.get("matchFields") or ()),
        )
        for term in raw.get("nodeSelectorTerms") or ()
    )


def _requirement(raw: Raw) -> Requirement:
    return Requirement(key=raw["key"], operator=raw["operator"], values=tuple(raw.get("values") or ()))


def requirements(raw: Iterable[Raw] | None) -> tuple[Requirement, ...]:
    """Of labels. Values that no label can have are an error to the scheduler, which then matches nothing."""
    return tuple(
        found if all(LABEL_VALUE.fullmatch(value) for value in found.values) else replace(found, operator=MALFORMED)
        for found in map(_requirement, raw or ())
    )


def label_selector(raw: Raw | None) -> LabelSelector | None:
    """None (matches nothing) and an empty selector (matches everything) are two things."""
    if raw is None:
        return None
    exact = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in sorted((raw.get("matchLabels") or {}).items())
    ]
    found = requirements((*exact, *(raw.get("matchExpressions") or ())))
    return LabelSelector(
        requirements=tuple(one if _of_labels(one) else replace(one, operator=MALFORMED) for one in found)
    )


def _of_labels(requirement: Requirement) -> bool:
    """Selectors of labels know four operators, two of them with values."""
    return bool(requirement.values) == (requirement.operator in ("In", "NotIn")) and requirement.operator in OPERATORS


def _narrowed(
    selector: LabelSelector | None, owner_labels: Mapping[str, str], keys: Iterable[str], operator: str
) -> LabelSelector | None:
    """The selector with matchLabelKeys (In) or mismatchLabelKeys (NotIn) as requirements on the pod's own labels."""
    if selector is None:
        return None
    more = [Requirement(key=key, operator=operator, values=(owner_labels[key],)) for key in keys if key in owner_labels]
    missing = tuple(one for one in more if one not in selector.requirements)
    return LabelSelector(requirements=(*selector.requirements, *missing)) if missing else selector


def affinity_terms(pod: Raw, kind: str) -> tuple[PodAffinityTerm, ...]:
    """The required terms of `podAffinity` or `podAntiAffinity`."""
    affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return tuple(_affinity_term(term, pod["metadata"]) for term in affinity.get(REQUIRED) or ())


def _affinity_term(raw: Raw, metadata: Raw) -> PodAffinityTerm:
    own_labels = metadata.get("labels") or {}
    namespaces = tuple(sorted(raw.get("namespaces") or ()))
    by_label = label_selector(raw.get("namespaceSelector"))
    selector = label_selector(raw.get("labelSelector"))
    selector = _narrowed(selector, own_labels, _unmerged(raw, "matchLabelKeys"), "In")
    selector = _narrowed(selector, own_labels, _unmerged(raw, "mismatchLabelKeys"), "NotIn")
    return PodAffinityTerm(
        topology_key=raw["topologyKey"],
        selector=selector,
        namespaces=namespaces if namespaces or by_label is not None else (metadata.get("namespace", ""),),
        namespace_selector=by_label,
    )


def _unmerged(raw: Raw, field: str) -> list[str]:
    """Keys that the API server has not made expressions of; it does so once, with the labels of that moment."""
    present = {entry["key"] for entry in (raw.get("labelSelector") or {}).get("matchExpressions") or ()}
    return [key for key in raw.get(field) or () if key not in present]


def spread_constraints(pod: Raw) -> tuple[SpreadConstraint, ...]:
    own_labels = pod["metadata"].get("labels") or {}
    return tuple(spread_constraint(raw, own_labels) for raw in pod["spec"].get("topologySpreadConstraints") or ())


def spread_constraint(raw: Raw, own_labels: Mapping[str, str]) -> SpreadConstraint:
    """One constraint of a pod with these labels; also a default one of a scheduler's profile."""
    selector = label_selector(raw.get("labelSelector"))
    return SpreadConstraint(
        topology_key=raw["topologyKey"],
        max_skew=raw["maxSkew"],
        selector=_narrowed(selector, own_labels, raw.get("matchLabelKeys") or (), "In"),
        min_domains=raw.get("minDomains") or 1,
        honors_affinity=(raw.get("nodeAffinityPolicy") or "Honor") == "Honor",
        honors_taints=(raw.get("nodeTaintsPolicy") or "Ignore") == "Honor",
        hard=raw["whenUnsatisfiable"] == "DoNotSchedule",
    )


def claim_uses(pod: Raw) -> tuple[ClaimUse, ...]:
    """Volumes with a claim, in the pod's order: the first that is in the way is named."""
    return tuple(_claim_uses(pod))


def _claim_uses(pod: Raw) -> Iterator[ClaimUse]:
    for volume in pod["spec"].get("volumes") or ():
        if volume.get("persistentVolumeClaim") is not None:
            yield ClaimUse(claim=volume["persistentVolumeClaim"]["claimName"])
        elif volume.get("ephemeral") is not None:
            yield ClaimUse(claim=f"{pod['metadata']['name']}-{volume['name']}", ephemeral=True)
