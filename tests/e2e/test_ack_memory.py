"""The policy that gives pods with ACK's resource a sized slice, on an API server that serves such policies."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.generate import manifests
from tests.builders.objects import manifest, pod
from tests.e2e.real_cluster import APPLY, RealCluster, call
from tests.e2e.rig.controlplane.tenants import objects_of
from tests.waiting import eventually

PODS = "/api/v1/namespaces/default/pods"
POLICIES = "/apis/admissionregistration.k8s.io/v1/"
SERVED = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
VALUES = ("--set", "policies.ackMemoryAsSlices=true")
OLDEST_MINOR = 36
ACK = "aliyun.com/gpu-mem"


def test_a_cluster_without_such_policies_is_refused_by_name(helm: Path) -> None:
    refused = manifests.template(helm, *VALUES)
    assert refused.returncode != 0
    assert "policies.ackMemoryAsSlices needs a cluster that serves MutatingAdmissionPolicy" in refused.stderr


def test_the_controller_shares_acks_nodes_in_slices_then(helm: Path) -> None:
    printed = manifests.template(helm, *VALUES, "--api-versions", SERVED).stdout
    assert "ackMemory: slices" in printed


@pytest.fixture(scope="module")
def sliced(cluster: RealCluster, helm: Path) -> Iterator[RealCluster]:
    """The policy in force."""
    if cluster.minor < OLDEST_MINOR:
        pytest.skip("this API server serves no MutatingAdmissionPolicy")
    printed = manifests.template(helm, *VALUES, "--api-versions", SERVED).stdout
    ours = [body for body in objects_of(printed) if body["kind"].startswith("MutatingAdmissionPolicy")]
    plural = {"MutatingAdmissionPolicy": "mutatingadmissionpolicies"}
    paths = [
        f"{POLICIES}{plural.get(body['kind'], 'mutatingadmissionpolicybindings')}/{body['metadata']['name']}"
        for body in ours
    ]
    for path, body in zip(paths, ours, strict=True):
        answer = call(cluster.admin, "PATCH", path, body, APPLY, fieldManager="e2e", force="true")
        assert answer.allowed, answer
    eventually(lambda: limits(cluster, {ACK: "1"}) == [{"nvidia.com/gpu-2gb": "1"}], "the policy is in force")
    yield cluster
    for path in reversed(paths):
        call(cluster.admin, "DELETE", path)


def limits(cluster: RealCluster, *requested: dict[str, str], init: bool = False) -> list[dict[str, str]]:
    """The limits of each container as the API server admits the pod; a dry run."""
    body = manifest(pod("ack"))
    containers = [
        {"name": f"c{number}", "image": "busybox", "resources": {"limits": dict(amounts)}}
        for number, amounts in enumerate(requested)
    ]
    kind = "initContainers" if init else "containers"
    body["spec"] = {"containers": [{"name": "main", "image": "busybox"}], kind: containers}
    answer = call(cluster.admin, "POST", PODS, body, dryRun="All")
    assert answer.allowed, answer
    found = answer.body["spec"][kind]
    assert all(one["resources"].get("requests") == one["resources"].get("limits") for one in found)
    return [one["resources"].get("limits", {}) for one in found]


@pytest.mark.parametrize("init", [False, True])
@pytest.mark.parametrize(("gib", "gb"), [(1, 2), (3, 4), (10, 11), (14, 16), (79, 85)])
def test_gib_become_a_slice_of_at_least_as_many_gb(sliced: RealCluster, gib: int, gb: int, init: bool) -> None:
    assert gb * 10**9 >= gib * 2**30
    assert limits(sliced, {ACK: str(gib)}, init=init) == [{f"nvidia.com/gpu-{gb}gb": "1"}]


def test_each_container_gets_its_own_and_others_stay(sliced: RealCluster) -> None:
    assert limits(sliced, {ACK: "3", "cpu": "1"}, {"nvidia.com/gpu": "1"}, {ACK: "5"}) == [
        {"nvidia.com/gpu-4gb": "1", "cpu": "1"},
        {"nvidia.com/gpu": "1"},
        {"nvidia.com/gpu-6gb": "1"},
    ]
