"""Pods from raw JSON: what the planner reads of a pod, and the kinds of GPU that it requests."""

import pytest

from controller.model.scheduling import HostPort, NodeSelectorTerm, Requirement, Toleration
from controller.model.views import PodView
from tests.builders.objects import SLICE, Json
from tests.builders.views import pod_view
from tests.controller.api.raw_pods import container, pod


def test_a_pending_pod() -> None:
    raw = pod(
        {
            "priority": 7,
            "nodeSelector": {"b": "2", "a": "1"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}, {"key": "k", "value": "v"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]},
                            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]},
                        ]
                    }
                }
            },
            "containers": [container(mig="1", cpu="0") | {"ports": [{"containerPort": 80, "hostPort": 8080}]}],
        },
        {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
        creationTimestamp="2026-01-02T03:04:05Z",
        ownerReferences=[{"kind": "ReplicaSet", "controller": True}, {"kind": "Other"}],
    )
    assert pod_view(raw) == PodView(
        namespace="default",
        name="p",
        uid="uid-p",
        priority=7,
        created=1767323045,
        pending_since=1767323045,
        requests=((SLICE, 1),),
        gpu=((SLICE, 1),),
        tolerations=(Toleration(key="nvidia.com/gpu", operator="Exists"), Toleration(key="k", value="v")),
        node_selector=(("a", "1"), ("b", "2")),
        node_affinity=(
            NodeSelectorTerm(labels=(Requirement(key="zone", operator="In", values=("a", "b")),)),
            NodeSelectorTerm(fields=(Requirement(key="metadata.name", operator="In", values=("n1",)),)),
        ),
        host_ports=(HostPort(port=8080),),
        unschedulable=True,
        owner_kind="ReplicaSet",
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"spec": {"schedulingGates": [{"name": "g"}]}}, "scheduling_gates"),
        ({"spec": {"resourceClaims": [{"name": "c"}]}}, "claims"),
        ({"deletionTimestamp": "2026-01-02T03:04:05Z"}, "deleting"),
    ],
)
def test_flags(change: Json, field: str) -> None:
    assert not getattr(pod_view(pod()), field)
    assert getattr(pod_view(pod(**change)), field)


def test_ports_of_a_pod_in_the_host_network_are_host_ports() -> None:
    spec = {"hostNetwork": True, "containers": [container() | {"ports": [{"containerPort": 9000, "protocol": "UDP"}]}]}
    assert pod_view(pod(spec)).host_ports == (HostPort(port=9000, protocol="UDP"),)


def requesting(*names: str) -> Json:
    return {"name": "c", "image": "i", "resources": {"limits": dict.fromkeys(names, "1")}}


@pytest.mark.parametrize(
    ("containers", "mixed"),
    [
        pytest.param([requesting("nvidia.com/mig-1g.5gb")], (), id="one kind"),
        pytest.param(
            [requesting("nvidia.com/mig-2g.10gb", "nvidia.com/mig-1g.5gb", "cpu")],
            (),
            id="two profiles add up",
        ),
        pytest.param([requesting("nvidia.com/mig-2g.10gb", "nvidia.com/gpu")], (), id="so do an instance and a GPU"),
        pytest.param(
            [requesting("nvidia.com/mig-2g.10gb", "nvidia.com/gpu-10gb")],
            ("nvidia.com/gpu-10gb", "nvidia.com/mig-2g.10gb"),
            id="a slice stays alone",
        ),
        pytest.param(
            [requesting("nvidia.com/mig-1g.5gb"), requesting("nvidia.com/gpu")], (), id="two kinds in two containers"
        ),
        pytest.param(
            [requesting(), requesting("nvidia.com/gpu", "nvidia.com/gpu-10gb")],
            ("nvidia.com/gpu", "nvidia.com/gpu-10gb"),
            id="in the second container",
        ),
    ],
)
def test_a_container_that_requests_a_slice_and_another_kind(containers: list[Json], mixed: tuple[str, ...]) -> None:
    assert pod_view(pod({"containers": containers})).mixed_container == mixed
    assert pod_view(pod({"initContainers": containers, "containers": []})).mixed_container == mixed


def test_names_like_those_of_slices_are_kept() -> None:
    container = requesting("nvidia.com/mig-1g10gb", "nvidia.com/gpu-10Gi", "nvidia.com/gpumem", "nvidia.com/gpu")
    assert pod_view(pod({"containers": [container]})).misnamed == (
        "nvidia.com/gpu-10Gi",
        "nvidia.com/gpumem",
        "nvidia.com/mig-1g10gb",
    )


def test_mps_slices_are_counted_per_container() -> None:
    assert pod_view(pod({"containers": [container(mps="1"), container("b", mps="1")]})).most_mps_per_container == 1
    assert pod_view(pod({"containers": [container(mps="2")]})).most_mps_per_container == 2
    acknowledged = {"name": "a", "resources": {"limits": {"aliyun.com/gpu-mem": 4}}}
    assert pod_view(pod({"containers": [acknowledged]})).most_mps_per_container == 1


@pytest.mark.parametrize(
    ("manager", "expected"), [("gpuplan-controller", True), ("kube-scheduler", False), (None, False)]
)
def test_whose_nomination_it_is(manager: str | None, expected: bool) -> None:
    entry: Json = {"manager": manager, "subresource": "status", "fieldsV1": {"f:status": {"f:nominatedNodeName": {}}}}
    raw = pod(status={"nominatedNodeName": "n1"}, managedFields=[entry] if manager else [])
    assert pod_view(raw).nominated_node == "n1"
    assert pod_view(raw).nomination_ours is expected


def test_what_a_tenant_writes_into_a_pod_that_it_creates_makes_no_nomination_ours() -> None:
    """The API server keeps managedFields of a created pod; only a write of the status gets its subresource."""
    entry: Json = {"manager": "gpuplan-controller", "fieldsV1": {"f:status": {"f:nominatedNodeName": {}}}}
    assert not pod_view(pod(status={"nominatedNodeName": "n1"}, managedFields=[entry])).nomination_ours


@pytest.mark.parametrize(
    ("resource", "variable", "found"),
    [
        ("nvidia.com/gpu-10gb", "NVIDIA_VISIBLE_DEVICES", "main"),
        ("nvidia.com/gpu.shared", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "main"),
        ("aliyun.com/gpu-mem", "CUDA_MPS_PIPE_DIRECTORY", "main"),
        ("nvidia.com/gpu-10gb", "CUDA_VISIBLE_DEVICES", ""),
        ("nvidia.com/gpu", "NVIDIA_VISIBLE_DEVICES", ""),
        ("nvidia.com/mig-1g.10gb", "CUDA_MPS_PIPE_DIRECTORY", ""),
    ],
)
def test_a_container_that_sets_the_limits_of_its_share(resource: str, variable: str, found: str) -> None:
    main = {"name": "main", "env": [{"name": variable, "value": "x"}], "resources": {"limits": {resource: "1"}}}
    assert pod_view(pod({"containers": [{"name": "plain"}, main]})).overriding_container == found


@pytest.mark.parametrize(
    ("of_pod", "of_container", "users"),
    [(None, None, (-1,)), (1000, None, (1000,)), (1000, 7, (7,)), (None, 0, (0,))],
)
def test_as_whom_containers_with_a_share_run(
    of_pod: int | None, of_container: int | None, users: tuple[int, ...]
) -> None:
    def context(user: int | None) -> Json:
        return {} if user is None else {"securityContext": {"runAsUser": user}}

    main = {"name": "main", "resources": {"limits": {"nvidia.com/gpu-10gb": "1"}}, **context(of_container)}
    spec = {"containers": [main, {"name": "side", **context(99)}], **context(of_pod)}
    assert pod_view(pod(spec)).mps_users == users


def test_the_most_gib_of_one_container_counts() -> None:
    containers = [{"name": f"c{gib}", "resources": {"limits": {"aliyun.com/gpu-mem": str(gib)}}} for gib in (3, 40, 5)]
    assert pod_view(pod({"containers": containers})).most_units == 40
    assert pod_view(pod({"containers": [{"name": "plain"}]})).most_units == 0
