"""The scripted container runtime as a process, and its records of containers.

Takes the program and a folder; returns frozen records of every container since the process started, and the two
switches of a test: end a container, release one that will not die. The process outlives its kubelet; starting it again
is what a reboot looks like, for all containers are gone then.
"""

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from sandbox.kubelet.injection import ContainerOptions, Mount
from tests.e2e.rig.controlplane.part import Part

ANSWER_SECONDS = 20.0
START_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """One container; times are epoch seconds, None before they come."""

    container_id: str
    pod_uid: str
    namespace: str
    pod: str
    name: str
    attempt: int
    state: str
    """created, running or exited."""
    options: ContainerOptions
    """What the kubelet gave it, Kubernetes' own mounts and variables included."""
    log_path: str
    started_at: float | None
    finished_at: float | None
    exit_code: int
    stop_graces_seconds: tuple[int, ...]
    """Of every requested stop."""


class Runtime:
    """One process; `containers` can be called while it runs."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.socket = folder / "cri.sock"
        self._control = folder / "cri-control.sock"
        command = [str(program), f"-socket={self.socket}", f"-control={self._control}"]
        self._process = Part("scripted-cri", command, log=folder / "cri.log", ready=self._serves)

    def start(self) -> None:
        """Return when it serves; raises ControlPlaneFailed."""
        self._process.start()
        self._process.wait(START_SECONDS)

    def stop(self) -> None:
        """Every container is gone with it."""
        self._process.stop()

    def containers(self, pod_uid: str | None = None) -> tuple[Container, ...]:
        """In the order in which they were created, removed ones included."""
        found = [_container(raw) for raw in json.loads(self._call("GET", "/containers"))]
        return tuple(each for each in found if pod_uid is None or each.pod_uid == pod_uid)

    def end(self, container_id: str, exit_code: int = 0) -> None:
        """As if its process ended by itself."""
        self._call("POST", f"/containers/{container_id}/exit?code={exit_code}")

    def release(self, container_id: str) -> None:
        """Let a stop come to its end at once, unkillable or not."""
        self._call("POST", f"/containers/{container_id}/release")

    def _serves(self) -> bool:
        return all(connects(path) for path in (self.socket, self._control))

    def _call(self, method: str, path: str) -> bytes:
        connection = _UnixConnection(self._control)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise LookupError(f"{method} {path}: {text.decode().strip()}")
        return text


class _UnixConnection(HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ANSWER_SECONDS)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def connects(path: Path) -> bool:
    """Whether a process listens there; the file of a dead socket does not count."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def _container(raw: Mapping[str, Any]) -> Container:
    return Container(
        container_id=raw["id"],
        pod_uid=raw["podUid"],
        namespace=raw["namespace"],
        pod=raw["pod"],
        name=raw["container"],
        attempt=raw["attempt"],
        state=raw["state"],
        options=ContainerOptions(
            env=raw["env"],
            mounts=tuple(
                Mount(container_path=each["containerPath"], host_path=each["hostPath"], read_only=each["readOnly"])
                for each in raw["mounts"]
            ),
            cdi_names=tuple(raw["cdiNames"]),
        ),
        log_path=raw["logPath"],
        started_at=raw["startedAt"] or None,
        finished_at=raw["finishedAt"] or None,
        exit_code=raw["exitCode"],
        stop_graces_seconds=tuple(stop["graceSeconds"] for stop in raw["stops"]),
    )
