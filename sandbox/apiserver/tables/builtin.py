"""Columns of the builtin kinds, as `kubectl get` shows them on a real cluster.

Comes in: a kind. Goes out: its columns; kinds without columns of their own show name and age. Cells are functions of
the stored object. Must never fail on an object that lacks fields.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from sandbox.apiserver.objects import Obj, dig, mappings
from sandbox.apiserver.resources.column import Column
from sandbox.apiserver.tables import events, nodes, pods, workloads
from sandbox.apiserver.tables.ages import human_duration
from sandbox.apiserver.tables.custom import AGE, NAME

NONE: Final = "<none>"


def _get(*path: str, missing: Any = NONE) -> Callable[[Obj], Any]:
    def cell(obj: Obj) -> Any:
        value = dig(obj, *path)
        return missing if value is None or value == "" else value

    return cell


def _wide(name: str, cell: Callable[[Obj], Any]) -> Column:
    return Column(name=name, cell=cell, priority=1)


def _count(name: str, *path: str) -> Column:
    return Column(name=name, type="integer", cell=_get(*path, missing=0))


def _size(*fields: str) -> Callable[[Obj], int]:
    return lambda obj: sum(len(obj.get(field) or {}) for field in fields)


def _job_duration(job: Obj) -> str:
    started, ended = dig(job, "status", "startTime"), dig(job, "status", "completionTime")
    if not started:
        return ""
    until = datetime.fromisoformat(ended) if ended else datetime.now(UTC)
    return human_duration((until - datetime.fromisoformat(started)).total_seconds())


def _service_ports(service: Obj) -> str:
    listed = []
    for port in mappings(dig(service, "spec", "ports")):
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        listed.append(f"{port.get('port', 0)}{node_port}/{port.get('protocol', 'TCP')}")
    return ",".join(listed) or NONE


_CREATED: Final = Column(name="Created At", type="date", format="date-time", cell=_get("metadata", "creationTimestamp"))
_ROLE: Final = Column(name="Role", cell=lambda obj: f"{dig(obj, 'roleRef', 'kind')}/{dig(obj, 'roleRef', 'name')}")

COLUMNS: Final[dict[str, tuple[Column, ...]]] = {
    "ClusterRole": (NAME, _CREATED),
    "ClusterRoleBinding": (NAME, _ROLE, AGE),
    "ConfigMap": (NAME, Column(name="Data", type="integer", cell=_size("data", "binaryData")), AGE),
    "CustomResourceDefinition": (NAME, _CREATED),
    "DaemonSet": (
        NAME,
        _count("Desired", "status", "desiredNumberScheduled"),
        _count("Current", "status", "currentNumberScheduled"),
        _count("Ready", "status", "numberReady"),
        _count("Up-to-date", "status", "updatedNumberScheduled"),
        _count("Available", "status", "numberAvailable"),
        Column(name="Node Selector", cell=workloads.node_selector),
        AGE,
        *workloads.WIDE,
    ),
    "Deployment": (
        NAME,
        Column(name="Ready", cell=workloads.ready("readyReplicas")),
        _count("Up-to-date", "status", "updatedReplicas"),
        _count("Available", "status", "availableReplicas"),
        AGE,
        *workloads.WIDE,
    ),
    "Event": events.COLUMNS,
    "Job": (
        NAME,
        Column(name="Status", cell=workloads.job_status),
        Column(name="Completions", cell=workloads.job_completions),
        Column(name="Duration", cell=_job_duration),
        AGE,
        *workloads.WIDE,
    ),
    "Lease": (NAME, Column(name="Holder", cell=_get("spec", "holderIdentity", missing="")), AGE),
    "Namespace": (NAME, Column(name="Status", cell=_get("status", "phase", missing="")), AGE),
    "Node": nodes.COLUMNS,
    "Pod": pods.COLUMNS,
    "PodDisruptionBudget": (
        NAME,
        Column(name="Min Available", cell=_get("spec", "minAvailable", missing="N/A")),
        Column(name="Max Unavailable", cell=_get("spec", "maxUnavailable", missing="N/A")),
        _count("Allowed Disruptions", "status", "disruptionsAllowed"),
        AGE,
    ),
    "PriorityClass": (
        NAME,
        Column(name="Value", type="integer", cell=_get("value", missing=0)),
        Column(name="Global-Default", type="boolean", cell=_get("globalDefault", missing=False)),
        AGE,
        Column(name="PreemptionPolicy", cell=_get("preemptionPolicy", missing="PreemptLowerPriority")),
    ),
    "ReplicaSet": (
        NAME,
        _count("Desired", "spec", "replicas"),
        _count("Current", "status", "replicas"),
        _count("Ready", "status", "readyReplicas"),
        AGE,
        *workloads.WIDE,
    ),
    "Role": (NAME, _CREATED),
    "RoleBinding": (NAME, _ROLE, AGE),
    "RuntimeClass": (NAME, Column(name="Handler", cell=_get("handler", missing="")), AGE),
    "Secret": (
        NAME,
        Column(name="Type", cell=_get("type", missing="Opaque")),
        Column(name="Data", type="integer", cell=_size("data")),
        AGE,
    ),
    "Service": (
        NAME,
        Column(name="Type", cell=_get("spec", "type", missing="ClusterIP")),
        Column(name="Cluster-IP", cell=_get("spec", "clusterIP")),
        Column(name="External-IP", cell=lambda obj: ",".join(dig(obj, "spec", "externalIPs") or []) or NONE),
        Column(name="Port(s)", cell=_service_ports),
        AGE,
        _wide("Selector", lambda obj: workloads.labels_text(dig(obj, "spec", "selector"))),
    ),
    "StatefulSet": (
        NAME,
        Column(name="Ready", cell=workloads.ready("readyReplicas")),
        AGE,
        *workloads.WIDE[:2],
    ),
}


def columns_of(kind: str) -> tuple[Column, ...]:
    return COLUMNS.get(kind, (NAME, AGE))
