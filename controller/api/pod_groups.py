"""Finds the gang that a pod belongs to: pods that run together or not at all, as batch schedulers mark them.

Takes a pod as the API server sent it and returns the gang's name in the pod's namespace and how many of its pods must
run together; 0 where the pod gives no number, which means all of its pending pods. Reads the pod's fields, labels and
annotations only: the PodGroup objects of these systems are not watched.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple


class GangMark(NamedTuple):
    """Empty where the pod belongs to no gang."""

    name: str = ""
    size: int = 0


class _Convention(NamedTuple):
    """Keys of labels or annotations of one system."""

    name: str
    size: str = ""


_CONVENTIONS = (
    _Convention("kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"),
    _Convention("scheduling.volcano.sh/group-name", "scheduling.volcano.sh/group-min-member"),
    _Convention("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-min-member"),
    _Convention("scheduling.x-k8s.io/pod-group"),
    _Convention("pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"),
)


def gang_of(raw: Mapping[str, Any]) -> GangMark:
    """The API's own `schedulingGroup` outranks marks of others."""
    group = (raw.get("spec") or {}).get("schedulingGroup") or {}
    if group.get("podGroupName"):
        return GangMark(str(group["podGroupName"]))
    metadata = raw["metadata"]
    marks = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    for convention in _CONVENTIONS:
        name = marks.get(convention.name)
        if name:
            return GangMark(name, _number(marks.get(convention.size, "")))
    return GangMark()


def _number(text: str) -> int:
    """Annotations are free text, and a wrong one must not cost us the pod."""
    return int(text) if text.isascii() and text.isdigit() else 0
