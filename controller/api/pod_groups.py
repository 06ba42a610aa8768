"""Finds the gang that a pod belongs to: pods that run together or not at all, as batch schedulers mark them.

Takes a pod as the API server sent it and returns the gang's name in the pod's namespace and how many of its pods must
run together; 0 where the pod gives no number, which means all of its pending pods. The number of a PodGroup object,
whose API group the mark names, outranks that of the pod: `read_pod_group` returns it. Reads no other object.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from controller.api.reading import Unreadable, readable


class GangMark(NamedTuple):
    """Empty where the pod belongs to no gang."""

    name: str = ""
    size: int = 0
    api_group: str = ""
    """Of the PodGroup object that has the number; empty where the system has none."""


class _Convention(NamedTuple):
    """Keys of labels or annotations of one system."""

    name: str
    size: str = ""
    api_group: str = ""


KUBERNETES, COSCHEDULING, VOLCANO = "scheduling.k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh"
_CONVENTIONS = (
    _Convention("kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"),
    _Convention("scheduling.volcano.sh/group-name", "scheduling.volcano.sh/group-min-member", VOLCANO),
    _Convention("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-min-member", VOLCANO),
    _Convention("scheduling.x-k8s.io/pod-group", api_group=COSCHEDULING),
    _Convention("pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"),
)
_ONE_BY_ONE = ("kueue.x-k8s.io/pod-group-serving", "kueue.x-k8s.io/pod-group-fast-admission")
"""Kueue's marks of groups, such as StatefulSets, of which each pod is created once the one before it is ready."""


_DIGITS = 10


def gang_of(raw: Mapping[str, Any]) -> GangMark:
    """The API's own `schedulingGroup` outranks marks of others."""
    group = (raw.get("spec") or {}).get("schedulingGroup") or {}
    if group.get("podGroupName"):
        return GangMark(str(group["podGroupName"]), api_group=KUBERNETES)
    metadata = raw["metadata"]
    marks = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    if any(marks.get(key) == "true" for key in _ONE_BY_ONE):
        return GangMark()
    for convention in _CONVENTIONS:
        name = marks.get(convention.name)
        if name:
            return GangMark(name, _number(marks.get(convention.size, "")), convention.api_group)
    return GangMark()


def read_pod_group(raw: Mapping[str, Any]) -> int | Unreadable:
    """How many pods of a PodGroup, of any of the three systems, must run together; 0: each may start by itself."""
    return readable("podgroup", raw, _least)


def _least(raw: Mapping[str, Any]) -> int:
    spec = raw.get("spec") or {}
    gang = (spec.get("schedulingPolicy") or {}).get("gang") or {}
    return max(0, int(gang.get("minCount") or spec.get("minMember") or 0))


def _number(text: str) -> int:
    """Annotations are free text, and a wrong one must not cost us the pod."""
    return int(text) if len(text) < _DIGITS and text.isascii() and text.isdigit() else 0
