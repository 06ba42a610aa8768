"""Describes containers as the scripted runtime keeps them, and the hooks that it calls.

`ContainerRequest` is what a kubelet requests, `ContainerRecord` what became of it; simulated hardware overrides
`ContainerHooks` to see processes come and go. Values only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sandbox.kubelet.injection import ContainerOptions


class ContainerState(StrEnum):
    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRequest:
    pod_uid: str
    namespace: str
    pod: str
    container: str
    options: ContainerOptions
    """What the container got: environment, mounts, CDI names, device nodes."""
    device_ids: Mapping[str, tuple[str, ...]]
    """By resource; the container's own, and for a plain init container what later ones take over."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Of the pod."""
    run_seconds: float
    exit_code: int = 0
    start_seconds: float
    stop_seconds: float
    unkillable_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRecord:
    container_id: str
    pid: int
    request: ContainerRequest
    state: ContainerState
    started_at: float | None = None
    finished_at: float | None = None
    """Epoch seconds."""
    exit_code: int = 0
    start_error: str = ""
    """Why the container never ran: the hook refused it."""


class ContainerHooks:
    """Called from the runtime's thread, in the order of events of each container. These simulate no hardware."""

    def container_started(self, container: ContainerRecord) -> str | None:  # noqa: ARG002 - for those that do
        """The processes appear. A returned text is why the container cannot start; it is tried again later."""
        return None

    def container_stopped(self, container: ContainerRecord) -> None:
        """The processes are gone. Only after a start that was not refused."""
