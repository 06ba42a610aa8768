"""Cells that the kinds with a pod template share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sandbox.apiserver.objects import Obj, dig, mappings
from sandbox.apiserver.resources.column import Column

_NONE: Final = "<none>"


def labels_text(labels: Mapping[str, Any] | None) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted((labels or {}).items())) or _NONE


def node_selector(obj: Obj) -> str:
    return labels_text(dig(obj, "spec", "template", "spec", "nodeSelector"))


def ready(field: str) -> Callable[[Obj], str]:
    def cell(obj: Obj) -> str:
        wanted = dig(obj, "spec", "replicas")
        return f"{dig(obj, 'status', field) or 0}/{1 if wanted is None else wanted}"

    return cell


def job_completions(job: Obj) -> str:
    return f"{dig(job, 'status', 'succeeded') or 0}/{dig(job, 'spec', 'completions') or 1}"


def job_status(job: Obj) -> str:
    for condition in mappings(dig(job, "status", "conditions")):
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            return str(condition["type"])
    return "Running"


def _containers(field: str) -> Callable[[Obj], str]:
    def cell(obj: Obj) -> str:
        containers = mappings(dig(obj, "spec", "template", "spec", "containers"))
        return ",".join(str(container.get(field, "")) for container in containers)

    return cell


WIDE: Final = (
    Column(name="Containers", priority=1, cell=_containers("name")),
    Column(name="Images", priority=1, cell=_containers("image")),
    Column(name="Selector", priority=1, cell=lambda obj: labels_text(dig(obj, "spec", "selector", "matchLabels"))),
)
