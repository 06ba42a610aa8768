"""Pods as a kubelet needs them: frozen readings of what the API holds.

In: raw pod JSON. Out: `Pod` with its containers in start order, each with the devices it asks for and the time it
runs. Quantities are integers from here on: cpu in milli, memory in bytes, everything else in units. Nothing here
looks at nodes, devices or the clock.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from controller.api.pod_requests import amounts, pod_requests
from sandbox.kubelet.commands import running_seconds
from sandbox.kubelet.resource_names import is_extended_resource
from sandbox.kubelet.scripts import Script, script_of

Amounts = Mapping[str, int]


class Role(StrEnum):
    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    name: str
    role: Role
    image: str
    env: tuple[tuple[str, str], ...]
    devices: tuple[tuple[str, int], ...]
    """Extended resources of the limits, sorted by name; which of them are a plugin's only the device table knows."""
    run_seconds: float
    """Of one run; `inf` for a container that ends only when it is stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    uid: str
    namespace: str
    name: str
    created: str
    node: str
    containers: tuple[Container, ...]
    requests: Amounts
    """What the scheduler counts for the whole pod: init containers, sidecars and overhead included."""
    restart_policy: str = "Always"
    host_network: bool = False
    active_deadline_seconds: float | None = None
    grace_seconds: float = 30.0
    """The pod's own, for ends that nobody asked for: its deadline, and sidecars after its work."""
    script: Script = field(default_factory=Script)
    deleting: bool = False
    deletion_grace_seconds: float = 0.0
    phase: str = "Pending"
    start_time: str = ""
    pod_ip: str = ""

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    def container(self, name: str) -> Container:
        return next(container for container in self.containers if container.name == name)


def parse_pod(raw: Mapping[str, Any]) -> Pod:
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    deadline, grace = spec.get("activeDeadlineSeconds"), spec.get("terminationGracePeriodSeconds")
    return Pod(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        created=metadata.get("creationTimestamp") or "",
        node=spec.get("nodeName") or "",
        containers=tuple(_containers(spec)),
        requests={name: count for name, count in sorted(pod_requests(raw).items()) if count},
        restart_policy=spec.get("restartPolicy") or "Always",
        host_network=bool(spec.get("hostNetwork")),
        active_deadline_seconds=None if deadline is None else float(deadline),
        grace_seconds=30.0 if grace is None else float(grace),
        script=script_of(metadata.get("annotations") or {}),
        deleting=bool(metadata.get("deletionTimestamp")),
        deletion_grace_seconds=float(metadata.get("deletionGracePeriodSeconds") or 0),
        phase=status.get("phase") or "Pending",
        start_time=status.get("startTime") or "",
        pod_ip=status.get("podIP") or "",
    )


def _containers(spec: Mapping[str, Any]) -> Iterable[Container]:
    for raw in spec.get("initContainers") or ():
        yield _container(raw, _init_role(raw))
    for raw in spec.get("containers") or ():
        yield _container(raw, Role.APP)


def _init_role(raw: Mapping[str, Any]) -> Role:
    return Role.SIDECAR if raw.get("restartPolicy") == "Always" else Role.INIT


def _container(raw: Mapping[str, Any], role: Role) -> Container:
    seconds = running_seconds(raw.get("command") or (), raw.get("args") or ())
    if seconds is None:
        # An init container that names no sleep is short work; waiting for it for ever would hold the pod back.
        seconds = 0.0 if role is Role.INIT else math.inf
    limits = amounts((raw.get("resources") or {}).get("limits"))
    return Container(
        name=raw["name"],
        role=role,
        image=raw.get("image") or "",
        env=tuple((entry["name"], entry.get("value") or "") for entry in raw.get("env") or ()),
        devices=tuple((name, count) for name, count in sorted(limits.items()) if is_extended_resource(name)),
        run_seconds=seconds,
    )
