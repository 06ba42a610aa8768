"""The control plane under a simulated cluster: an API server, a scheduler, and a kubeconfig for each program.

`ControlPlane` is what a cluster needs of it, and `Embedded` is our API server and scheduler in this process. A real
control plane implements the same protocol where a repository's tests need one. A cluster must know the protocol only.
"""

from enum import StrEnum
from pathlib import Path
from typing import Protocol

from kube import clients
from sandbox.apiserver import ApiServer
from sandbox.scheduler import Scheduler


class ControlPlaneFailed(Exception):  # noqa: N818 - the world is broken; the name says what of it
    """A server did not start, or did not serve in time."""


class Role(StrEnum):
    """Who talks to the API server."""

    PERSON = "person"
    """The person who started the cluster: may do everything."""
    CONTROLLER = "controller"
    AGENT = "agent"
    KUBELET = "kubelet"


class ControlPlane(Protocol):
    """Started before anything else, stopped after everything else."""

    def start(self) -> None:
        """Return when the API answers; raises ControlPlaneFailed."""

    def begin_scheduling(self) -> None:
        """From now on pods are bound, at the latest."""

    def kubeconfig(self, role: Role, node: str = "") -> str:
        """Text of a kubeconfig; `node` is of an agent or a kubelet, whose Node exists."""

    def stop(self) -> None: ...


def write_kubeconfig(plane: ControlPlane, folder: Path, role: Role, node: str = "") -> Path:
    """Write a file that only its owner reads, named for its role and node."""
    path = folder / f"{'-'.join(word for word in (role, node) if word)}.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(plane.kubeconfig(role, node))
    return path


class Embedded:
    """API server and scheduler in this process, without authentication; its agents are limited as the chart has it."""

    def __init__(self) -> None:
        self._server = ApiServer(limits_agents=True)
        self._scheduler: Scheduler | None = None

    def start(self) -> None:
        """Serve."""
        self._server.start()

    def begin_scheduling(self) -> None:
        """Start the scheduler stand-in."""
        self._scheduler = Scheduler(clients.for_url(self._server.url))
        self._scheduler.start()

    def kubeconfig(self, role: Role, node: str = "") -> str:  # noqa: ARG002 - the protocol's; all are one here
        """The same for all roles."""
        return self._server.kubeconfig()

    def stop(self) -> None:
        """End the scheduler, then the server."""
        if self._scheduler:
            self._scheduler.stop()
        self._server.stop()
