"""etcd, kube-apiserver, kube-scheduler and kube-controller-manager on loopback, as one thing to start and stop.

Takes programs; gives a kubeconfig per identity (the administrator's by default), and parts that tests kill, freeze and
start again. Each wait has a limit; whatever goes wrong on the way up leaves nothing running. Addresses stay the same
over restarts of a part.
"""

import shutil
import ssl
import tempfile
import threading
from collections.abc import Mapping, Sequence
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

from sandbox.ports import HeldPort
from tests.e2e.rig.controlplane import flags
from tests.e2e.rig.controlplane.binaries import Binaries
from tests.e2e.rig.controlplane.certificates import Authority, Pair
from tests.e2e.rig.controlplane.part import Part

ETCD = "etcd"
API_SERVER = "kube-apiserver"
SCHEDULER = "kube-scheduler"
CONTROLLER_MANAGER = "kube-controller-manager"
SERVE_SECONDS = 180.0  # 3 s on a quiet machine; loaded ones were seen to take half a minute
ANSWER_SECONDS = 5.0
DEFAULT_ACCOUNT = "/api/v1/namespaces/default/serviceaccounts/default"


class RealControlPlane:
    """Start with `start`, end with `stop`; `parts` by name in between."""

    def __init__(
        self,
        programs: Binaries,
        *,
        directory: Path | None = None,
        extra: Mapping[str, Sequence[str]] | None = None,
        api_port: int | None = None,
    ) -> None:
        self.programs = programs
        self._own_directory = directory is None
        self.directory = directory or Path(tempfile.mkdtemp(prefix="gpuplan-plane-", dir="/tmp"))
        self.parts: dict[str, Part] = {}
        self._extra = dict(extra or {})
        self._lock = threading.Lock()
        self._layout: flags.Layout | None = None
        self._ports = (HeldPort(), HeldPort())
        self._api_port = api_port or self._ports[0].number
        self._admin: Pair | None = None

    @property
    def version(self) -> str:
        """Kubernetes version of the servers."""
        return self.programs.kubernetes

    @property
    def url(self) -> str:
        """Root of the API."""
        return self._laid_out.url

    def kubeconfig(self) -> str:
        """The administrator's (group system:masters)."""
        return self._laid_out.authority.kubeconfig(self.url, self._admin)

    def kubeconfig_of(self, user: str, groups: Sequence[str] = ()) -> str:
        """A kubeconfig with a client certificate of that user, such as system:node:NAME of group system:nodes."""
        with self._lock:
            authority = self._laid_out.authority
            return authority.kubeconfig(self.url, authority.client(user, groups))

    def kubeconfig_with(self, token: str) -> str:
        """A kubeconfig with a bearer token, such as a service account's."""
        return self._laid_out.authority.kubeconfig(self.url, token=token)

    def start(self) -> None:
        """Return when the API answers and service accounts are made; raises ControlPlaneFailed."""
        try:
            self._start_once()
        except BaseException:
            self._stop_parts()
            raise

    def restart(self, name: str) -> None:
        """Start a part that was killed or stopped, and wait until it serves."""
        part = self.parts[name]
        part.start()
        part.wait(SERVE_SECONDS)

    def stop(self) -> None:
        """End every server; remove the folder, or where it was given only the data: logs are for people."""
        self._stop_parts()
        for port in self._ports:
            port.close()
        shutil.rmtree(self.directory if self._own_directory else self.directory / "etcd", ignore_errors=True)

    @property
    def _laid_out(self) -> flags.Layout:
        if self._layout is None:
            raise RuntimeError("the control plane is not started")
        return self._layout

    def _start_once(self) -> None:
        self._layout = layout = self._lay_out()
        self.parts = {
            ETCD: self._part(ETCD, flags.etcd(self.programs, layout)),
            API_SERVER: self._part(API_SERVER, flags.api_server(self.programs, layout)),
            SCHEDULER: self._part(SCHEDULER, flags.scheduler(self.programs, layout)),
            CONTROLLER_MANAGER: self._part(CONTROLLER_MANAGER, flags.controller_manager(self.programs, layout)),
        }
        for name in (ETCD, API_SERVER):
            self.restart(name)
        for name in (SCHEDULER, CONTROLLER_MANAGER):
            self.parts[name].start()
        for name in (CONTROLLER_MANAGER, SCHEDULER):
            self.parts[name].wait(SERVE_SECONDS)

    def _lay_out(self) -> flags.Layout:
        shutil.rmtree(self.directory / "etcd", ignore_errors=True)  # of an earlier start
        self.directory.mkdir(parents=True, exist_ok=True)
        authority = Authority(self.directory / "pki")
        layout = flags.Layout(
            directory=self.directory,
            api_port=self._api_port,
            etcd_port=self._ports[1].number,
            authority=authority,
            serving=authority.serving(
                API_SERVER, (flags.LOOPBACK, flags.SERVICE_ADDRESS), ("kubernetes", "kubernetes.default.svc")
            ),
            etcd=authority.serving(ETCD),
        )
        self._admin = authority.client("gpuplan-sandbox-admin", ("system:masters",))
        for name in (SCHEDULER, CONTROLLER_MANAGER):
            config = layout.kubeconfig(name)
            config.touch(mode=0o600)
            config.write_text(authority.kubeconfig(layout.url, authority.client(f"system:{name}")))
        return layout

    def _part(self, name: str, command: list[str]) -> Part:
        checks = {
            ETCD: lambda: self._answers(self._laid_out.etcd_port, "/health", self._laid_out.etcd),
            API_SERVER: lambda: self._api_answers("/readyz"),
            # It serves when its work is seen: an account in the namespace that every API server makes.
            CONTROLLER_MANAGER: lambda: self._api_answers(DEFAULT_ACCOUNT),
            SCHEDULER: lambda: self.parts[SCHEDULER].pid is not None,
        }
        command = [*command, *self._extra.get(name, ())]
        return Part(name, command, log=self.directory / f"{name}.log", ready=checks[name])

    def _api_answers(self, path: str) -> bool:
        return self._admin is not None and self._answers(self._laid_out.api_port, path, self._admin)

    def _answers(self, port: int, path: str, client: Pair) -> bool:
        context = ssl.create_default_context(cafile=str(self._laid_out.authority.ca.certificate))
        context.load_cert_chain(client.certificate, client.key)
        connection = HTTPSConnection(flags.LOOPBACK, port, timeout=ANSWER_SECONDS, context=context)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    def _stop_parts(self) -> None:
        etcd = self.parts.get(ETCD)
        others = [part for name, part in sorted(self.parts.items()) if name != ETCD]
        stoppers = [threading.Thread(target=part.stop) for part in others]
        for stopper in stoppers:
            stopper.start()
        for stopper in stoppers:
            stopper.join()
        if etcd:
            etcd.stop()
