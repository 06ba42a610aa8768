"""Reads pods as a kubelet needs them: frozen values from the raw JSON of the API.

A `Pod` has its containers in start order, each with the devices that it requests and the time that it runs. Quantities
are integers: CPU in milli, memory in bytes, everything else in units. No process runs in the sandbox, so a container's
time is read from the `sleep` of its command; it starts again after its end only where an annotation says how often.
Never reads nodes, devices or the clock.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from controller.api.pod_requests import amounts, pod_requests

_SLEEP = re.compile(r"(?<![\w-])sleep\b((?:\s+(?:\d+(?:\.\d+)?|\.\d+)[smhd]?(?![\w.]))*)")
_LOOP = re.compile(r"(?<![\w-])(?:while|until|for)\b")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def running_seconds(command: Sequence[str], args: Sequence[str]) -> float | None:
    """Sum of all `sleep N` in the command line; a loop around one, or `sleep infinity`, never ends."""
    text = " ".join([*command, *args])
    operands = [match.group(1).split() for match in _SLEEP.finditer(text)]
    if not operands:
        return None
    if _LOOP.search(text) or not all(operands):
        return math.inf
    return sum(_seconds(word) for words in operands for word in words)


def _seconds(word: str) -> float:
    unit = _SECONDS.get(word[-1])
    return float(word[:-1]) * unit if unit else float(word)


RESTARTS = "sandbox.gpuplan.dev/restarts"


_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_QUOTA_PREFIX = "requests."


def is_extended_resource(name: str) -> bool:
    """A domain of its own, and still a qualified name once quota puts `requests.` before it."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith(_QUOTA_PREFIX):
        return False
    domain, _, local = (_QUOTA_PREFIX + name).partition("/")
    return (
        len(domain) <= 253
        and len(local) <= 63
        and _DOMAIN.fullmatch(domain) is not None
        and _NAME.fullmatch(local) is not None
    )


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
    claims: tuple[str, ...] = ()
    """Of the pod's, by the pod's own names for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    uid: str
    namespace: str
    name: str
    created: str
    containers: tuple[Container, ...]
    requests: Amounts
    """What the scheduler counts for the whole pod: init containers, sidecars and overhead included."""
    host_network: bool = False
    grace_seconds: float = 30.0
    """The pod's own, for sidecars after its work, which end without a deletion."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    restarts: int = 0
    """How often its containers start again after they have ended."""
    claims: Mapping[str, str] = field(default_factory=dict)
    """ResourceClaims by the pod's names for them."""
    deleting: bool = False
    deletion_grace_seconds: float = 0.0
    phase: str = "Pending"
    start_time: str = ""

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
    grace, annotations = spec.get("terminationGracePeriodSeconds"), metadata.get("annotations") or {}
    restarts = annotations.get(RESTARTS, "")
    return Pod(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        created=metadata.get("creationTimestamp") or "",
        containers=tuple(_containers(spec)),
        requests={name: count for name, count in sorted(pod_requests(raw).items()) if count},
        host_network=bool(spec.get("hostNetwork")),
        grace_seconds=30.0 if grace is None else float(grace),
        annotations=annotations,
        restarts=int(restarts) if restarts.isdigit() else 0,
        claims={entry["name"]: entry.get("resourceClaimName") or "" for entry in spec.get("resourceClaims") or ()},
        deleting=bool(metadata.get("deletionTimestamp")),
        deletion_grace_seconds=float(metadata.get("deletionGracePeriodSeconds") or 0),
        phase=status.get("phase") or "Pending",
        start_time=status.get("startTime") or "",
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
        claims=tuple(entry["name"] for entry in (raw.get("resources") or {}).get("claims") or ()),
    )
