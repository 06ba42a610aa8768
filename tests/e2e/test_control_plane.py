"""The control plane itself: the requested version, loopback only, and the controllers that the product relies on."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kube import apply
from tests.e2e.real_cluster import RealCluster, call
from tests.waiting import eventually

MAPS = "/api/v1/namespaces/default/configmaps"
LISTEN = "0A"
LOOPBACK = ("0100007F", "00000000000000000000000001000000")  # as /proc/net/tcp and tcp6 write them


def test_the_version_is_stamped_in(cluster: RealCluster) -> None:
    version = apply.get(cluster.admin, "/version")
    assert version["gitVersion"] == f"v{cluster.plane.version}"
    assert (version["major"], version["minor"]) == ("1", str(cluster.minor))
    assert f"Server Version: v{cluster.plane.version}" in cluster.kubectl("version")


def _listening(pid: int) -> Iterator[str]:
    """Addresses on which a process listens, in the kernel's hexadecimal."""
    links = [os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]
    sockets = {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}
    for family in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{family}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == LISTEN and fields[9] in sockets:
                yield fields[1].partition(":")[0]


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="needs Linux' /proc")
def test_it_listens_on_loopback_only(cluster: RealCluster) -> None:
    addresses = {name: set(_listening(part.pid or 0)) for name, part in cluster.plane.parts.items()}
    assert addresses["etcd"]
    assert addresses["kube-apiserver"]
    assert set().union(*addresses.values()) <= set(LOOPBACK)


def test_credentials_are_required(cluster: RealCluster) -> None:
    stranger = cluster.bearer("not-a-token")
    assert call(stranger, "GET", "/api/v1/namespaces").status == 401
    assert call(cluster.person("stranger"), "GET", "/api/v1/namespaces").status == 403


def test_garbage_is_collected(cluster: RealCluster) -> None:
    owner = apply.create(cluster.admin, MAPS, {"metadata": {"name": "owner"}})
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    apply.create(cluster.admin, MAPS, {"metadata": {"name": "owned", "ownerReferences": [reference]}})
    apply.delete(cluster.admin, f"{MAPS}/owner")
    eventually(lambda: call(cluster.admin, "GET", f"{MAPS}/owned").status == 404, "the owned object is gone")


def test_namespaces_come_with_an_account_and_go_whole(cluster: RealCluster) -> None:
    path = "/api/v1/namespaces/short-lived"
    apply.create(cluster.admin, "/api/v1/namespaces", {"metadata": {"name": "short-lived"}})
    eventually(lambda: call(cluster.admin, "GET", f"{path}/serviceaccounts/default").allowed, "the service account")
    apply.delete(cluster.admin, path)
    eventually(lambda: call(cluster.admin, "GET", path).status == 404, "the namespace is gone")


def test_policies_were_checked_against_the_types(cluster: RealCluster) -> None:
    """The API server type-checks every expression and lists what cannot be right."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"

    def checked() -> bool:
        policies = apply.get(cluster.admin, path)["items"]
        return all("typeChecking" in (policy.get("status") or {}) for policy in policies)

    eventually(checked, "every policy was type-checked")
    for policy in apply.get(cluster.admin, path)["items"]:
        assert policy["status"]["typeChecking"] == {}, policy["metadata"]["name"]
