"""The command lines of etcd, API server, scheduler and controller manager.

Takes programs, addresses and files; returns argument lists that are the same for every supported version. Everything
listens on loopback; etcd takes clients with our certificate only, and nothing is open that need not be.
"""

from dataclasses import dataclass
from pathlib import Path

from tests.e2e.rig.controlplane.binaries import Binaries
from tests.e2e.rig.controlplane.certificates import Authority, Pair

LOOPBACK = "127.0.0.1"
SERVICE_RANGE = "10.0.0.0/24"
SERVICE_ADDRESS = "10.0.0.1"  # the first of the range: what pods call the API server
# In-process clients of the servers: a whole cluster is on one machine, and a test does not wait for a rate limit.
RATE = ("--kube-api-qps=400", "--kube-api-burst=800")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the parts of one control plane listen and keep their files."""

    directory: Path
    api_port: int
    etcd_port: int
    authority: Authority
    serving: Pair
    etcd: Pair

    @property
    def url(self) -> str:
        return f"https://{LOOPBACK}:{self.api_port}"

    @property
    def etcd_url(self) -> str:
        return f"https://{LOOPBACK}:{self.etcd_port}"

    def kubeconfig(self, name: str) -> Path:
        """The file of one server's own identity."""
        return self.directory / f"{name}.kubeconfig"


def etcd(programs: Binaries, layout: Layout) -> list[str]:
    """Data need not survive the machine, so writes are not synced to disk."""
    pair, ca = layout.etcd, layout.authority.ca.certificate
    return [
        str(programs["etcd"]),
        f"--data-dir={layout.directory / 'etcd'}",
        f"--listen-client-urls={layout.etcd_url}",
        f"--advertise-client-urls={layout.etcd_url}",
        f"--listen-peer-urls=http://{LOOPBACK}:0",
        f"--cert-file={pair.certificate}",
        f"--key-file={pair.key}",
        f"--trusted-ca-file={ca}",
        "--client-cert-auth",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def api_server(programs: Binaries, layout: Layout) -> list[str]:
    """RBAC, the node authorizer, real service-account tokens, every other setting at its default."""
    authority = layout.authority
    return [
        str(programs["kube-apiserver"]),
        f"--etcd-servers={layout.etcd_url}",
        f"--etcd-cafile={authority.ca.certificate}",
        f"--etcd-certfile={layout.etcd.certificate}",
        f"--etcd-keyfile={layout.etcd.key}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        "--endpoint-reconciler-type=none",  # a loopback address is no valid endpoint
        f"--secure-port={layout.api_port}",
        f"--tls-cert-file={layout.serving.certificate}",
        f"--tls-private-key-file={layout.serving.key}",
        f"--client-ca-file={authority.ca.certificate}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={authority.service_account_key}",
        f"--service-account-signing-key-file={authority.service_account_key}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--allow-privileged",
        "--profiling=false",
    ]


def scheduler(programs: Binaries, layout: Layout) -> list[str]:
    """One of it, so that it need not elect itself; no port of its own."""
    return [
        str(programs["kube-scheduler"]),
        f"--kubeconfig={layout.kubeconfig('kube-scheduler')}",
        "--leader-elect=false",
        "--secure-port=0",
        *RATE,
    ]


def controller_manager(programs: Binaries, layout: Layout) -> list[str]:
    """Every default controller, each with its own service account."""
    authority = layout.authority
    return [
        str(programs["kube-controller-manager"]),
        f"--kubeconfig={layout.kubeconfig('kube-controller-manager')}",
        f"--service-account-private-key-file={authority.service_account_key}",
        f"--root-ca-file={authority.ca.certificate}",
        "--use-service-account-credentials",
        "--leader-elect=false",
        "--secure-port=0",
        *RATE,
    ]
