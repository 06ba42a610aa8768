"""Raw pods and nodes, keyword-only and defaulted; uids count up so that no two pods share one."""

import itertools
from typing import Any

from tests.builders import objects

Raw = dict[str, Any]
MIG = "nvidia.com/mig-1g.10gb"
NODE = "node-a"
_numbers = itertools.count(1)


def container(name: str = "c", *, devices: int = 0, more: dict[str, int] | None = None, **fields: Any) -> Raw:
    """`devices` are of MIG; `more` is limits by resource."""
    limits = ({MIG: devices} if devices else {}) | (more or {})
    return objects.container(name, {resource: str(count) for resource, count in limits.items()}, **fields)


def pod(
    name: str = "",
    *,
    containers: list[Raw] | None = None,
    init: list[Raw] | None = None,
    node: str = NODE,
    created: str = "2026-01-01T00:00:00Z",
    annotations: dict[str, str] | None = None,
    spec: Raw | None = None,
    status: Raw | None = None,
) -> Raw:
    number = next(_numbers)
    prefixed = {f"sandbox.gpuplan.dev/{key}": value for key, value in (annotations or {}).items()}
    return objects.pod(
        name or f"pod-{number}",
        uid=f"uid-{number:04d}",
        node=node,
        containers=containers if containers is not None else [container(devices=1)],
        metadata={"creationTimestamp": created, "annotations": prefixed},
        status=status or {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
        **{"initContainers": init or [], **(spec or {})},
    )


def node(name: str = NODE, *, capacity: dict[str, str] | None = None) -> Raw:
    resources = {"cpu": "8", "memory": "32Gi", "pods": "20", **(capacity or {})}
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "status": {"capacity": resources}}
