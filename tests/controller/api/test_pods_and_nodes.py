"""Pods and nodes from raw JSON: the scheduler's arithmetic, the labels that enable a node, and broken objects."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.nodes import Enablement, enablement, read_node
from controller.api.pod_requests import held_requests, pod_requests
from controller.api.pods import read_pod
from controller.api.reading import Unreadable
from controller.model.views import HostPort, NodeSelectorTerm, NodeView, PodView, Requirement, Taint, Toleration

Json = dict[str, Any]
SLICE = "nvidia.com/mig-1g.10gb"


def container(name: str = "main", **requests: str) -> Json:
    names = {"cpu": "cpu", "memory": "memory", "mig": SLICE, "mps": "nvidia.com/gpu-10gb"}
    return {"name": name, "resources": {"requests": {names[key]: value for key, value in requests.items()}}}


def pod(spec: Json | None = None, status: Json | None = None, **metadata: Any) -> Json:
    return {
        "metadata": {"namespace": "default", "name": "p", "uid": "u-1", **metadata},
        "spec": {"containers": [container(mig="1")], **(spec or {})},
        "status": status or {},
    }


def view(raw: Json) -> PodView:
    read = read_pod(raw)
    assert isinstance(read, PodView)
    return read


SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"containers": [container(cpu="500m", memory="1Gi")]}, {"cpu": 500, "memory": 2**30}),
        ({"containers": [container(cpu="1"), container("b", cpu="0.5")]}, {"cpu": 1500}),
        ({"containers": [container(cpu="0.0001")]}, {"cpu": 1}),
        # A limit without a request is a request.
        ({"containers": [{"name": "a", "resources": {"limits": {SLICE: 1, "cpu": "2"}}}]}, {SLICE: 1, "cpu": 2000}),
        (
            {"containers": [{"name": "a", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]},
            {"cpu": 1000},
        ),
        # Plain init containers run one after the other, before the containers.
        (
            {"containers": [container(cpu="1")], "initContainers": [container("i", cpu="3"), container("j", cpu="2")]},
            {"cpu": 3000},
        ),
        # A sidecar runs on beside the containers, and beside the init containers after it.
        (
            {
                "containers": [container(cpu="1")],
                "initContainers": [container("s", cpu="1") | SIDECAR, container("i", cpu="2")],
            },
            {"cpu": 3000},
        ),
        (
            {
                "containers": [container(cpu="1")],
                "initContainers": [container("i", cpu="2"), container("s", cpu="1") | SIDECAR],
            },
            {"cpu": 2000},
        ),
        (
            {"containers": [container(mig="1")], "initContainers": [container("s", mig="1") | SIDECAR]},
            {SLICE: 2},
        ),
        # Pod-level requests replace cpu and memory, never extended resources; overhead comes on top.
        (
            {
                "containers": [container(cpu="1", mig="1")],
                "resources": {"requests": {"cpu": "4", SLICE: "9"}},
                "overhead": {"cpu": "250m"},
            },
            {"cpu": 4250, SLICE: 1},
        ),
    ],
)
def test_requests(spec: Json, expected: dict[str, int]) -> None:
    assert pod_requests({"spec": spec}) == expected


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], 3000),
        ([{"type": "PodResizePending", "reason": "Deferred"}], 3000),
        ([{"type": "PodResizePending", "reason": "Infeasible"}], 2000),
    ],
)
def test_a_bound_pod_takes_the_most_of_spec_and_what_a_resize_left(conditions: list[Json], expected: int) -> None:
    raw = pod(
        {"containers": [container(cpu="3")], "nodeName": "n1"},
        {
            "conditions": conditions,
            "containerStatuses": [
                {"name": "main", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "2"}}
            ],
        },
    )
    assert held_requests(raw) == {"cpu": expected}
    assert dict(view(raw).requests) == {"cpu": expected}


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
    assert view(raw) == PodView(
        namespace="default",
        name="p",
        uid="u-1",
        priority=7,
        created=1767323045,
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
        ({"spec": {"schedulingGates": [{"name": "g"}]}}, "scheduling_gated"),
        ({"spec": {"hostIPC": True}}, "host_ipc"),
        ({"spec": {"resourceClaims": [{"name": "c"}]}}, "claims"),
        ({"deletionTimestamp": "2026-01-02T03:04:05Z"}, "deleting"),
    ],
)
def test_flags(change: Json, field: str) -> None:
    assert not getattr(view(pod()), field)
    assert getattr(view(pod(**change)), field)


def test_ports_of_a_pod_in_the_host_network_are_host_ports() -> None:
    spec = {"hostNetwork": True, "containers": [container() | {"ports": [{"containerPort": 9000, "protocol": "UDP"}]}]}
    assert view(pod(spec)).host_ports == (HostPort(port=9000, protocol="UDP"),)


def requesting(*names: str) -> Json:
    return {"name": "c", "image": "i", "resources": {"limits": dict.fromkeys(names, "1")}}


@pytest.mark.parametrize(
    ("containers", "mixed"),
    [
        pytest.param([requesting("nvidia.com/mig-1g.5gb")], (), id="one kind"),
        pytest.param(
            [requesting("nvidia.com/mig-2g.10gb", "nvidia.com/mig-1g.5gb", "cpu")],
            ("nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb"),
            id="two profiles",
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
def test_a_container_that_requests_two_kinds_of_gpu(containers: list[Json], mixed: tuple[str, ...]) -> None:
    assert view(pod({"containers": containers})).mixed_container == mixed
    assert view(pod({"initContainers": containers, "containers": []})).mixed_container == mixed


def test_names_like_those_of_slices_are_kept() -> None:
    container = requesting("nvidia.com/mig-1g10gb", "nvidia.com/gpu-10Gi", "nvidia.com/gpumem", "nvidia.com/gpu")
    assert view(pod({"containers": [container]})).misnamed == ("nvidia.com/gpu-10Gi", "nvidia.com/mig-1g10gb")


def test_mps_slices_are_counted_per_container() -> None:
    assert view(pod({"containers": [container(mps="1"), container("b", mps="1")]})).most_mps_per_container == 1
    assert view(pod({"containers": [container(mps="2")]})).most_mps_per_container == 2
    acknowledged = {"name": "a", "resources": {"limits": {"aliyun.com/gpu-mem": 4}}}
    assert view(pod({"containers": [acknowledged]})).most_mps_per_container == 1


@pytest.mark.parametrize(
    ("manager", "expected"), [("gpuplan-controller", True), ("kube-scheduler", False), (None, False)]
)
def test_whose_nomination_it_is(manager: str | None, expected: bool) -> None:
    entry: Json = {"manager": manager, "fieldsV1": {"f:status": {"f:nominatedNodeName": {}}}}
    raw = pod(status={"nominatedNodeName": "n1"}, managedFields=[entry] if manager else [])
    assert view(raw).nominated_node == "n1"
    assert view(raw).nomination_ours is expected


def test_a_node() -> None:
    raw = {
        "metadata": {
            "name": "n1",
            "uid": "nu",
            "labels": {
                "gpuplan.dev/gpu-partitioning": "mig",
                "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
                "nvidia.com/gpu.count": "8",
                "nvidia.com/gpu.memory": "many",
            },
        },
        "spec": {"unschedulable": True, "taints": [{"key": "k", "effect": "NoExecute"}]},
        "status": {
            "allocatable": {"cpu": "63500m", "memory": "1Ki", "pods": "110", SLICE: "3"},
            "conditions": [{"type": "Ready", "status": "Unknown"}],
        },
    }
    node = read_node(raw)
    assert isinstance(node, NodeView)
    assert node.allocatable == {"cpu": 63500, "memory": 1024, "pods": 110, SLICE: 3}
    assert (node.partitioning, node.gpu_count, node.gpu_memory_mib) == ("mig", 8, 0)
    assert node.taints == (Taint(key="k", effect="NoExecute"),)
    assert node.unschedulable
    assert not node.ready


OURS, NOS, ALT, ACK = (
    "gpuplan.dev/gpu-partitioning",
    "nos.nebuly.com/gpu-partitioning",
    "nos.nebuly.ai/gpu-partitioning",
    "ack.node.gpu.schedule",
)


@pytest.mark.parametrize(
    ("labels", "mode", "remark"),
    [
        ({}, None, ""),
        ({OURS: "auto"}, "auto", ""),
        ({NOS: "mps"}, "mps", ""),
        ({ALT: "mig"}, "mig", ""),
        ({ACK: "mps"}, "mps", ""),
        ({ACK: "cgpu"}, None, ""),
        ({OURS: "mig", NOS: "mps"}, "mig", "is followed, not nos.nebuly.com/gpu-partitioning=mps"),
        ({OURS: "mig", NOS: "mig"}, "mig", ""),
        ({NOS: "mig", ACK: "mps"}, None, "disagree"),
        ({OURS: "MIG"}, None, "use one of mig, mps, auto"),
    ],
)
def test_which_labels_enable_a_node(labels: dict[str, str], mode: str | None, remark: str) -> None:
    found = enablement(labels)
    assert found == Enablement(mode=mode, warning=found.warning)
    assert remark in found.warning
    assert bool(remark) == bool(found.warning)


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"metadata": {"name": "p", "namespace": "a"}},
        {"metadata": None, "spec": {}},
        pod({"containers": "none"}),
        pod({"containers": [{"name": "a", "resources": {"requests": {"cpu": "much"}}}]}),
        pod(creationTimestamp="yesterday"),
    ],
)
def test_a_broken_pod_is_a_value_with_a_reason(raw: Json) -> None:
    read = read_pod(raw)
    assert isinstance(read, Unreadable)
    assert read.kind == "pod"
    assert read.reason


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(pod()["spec"])), inner),
        max_leaves=6,
    )
)
def test_whatever_the_spec_holds_the_watch_survives(spec: Any) -> None:
    assert isinstance(read_pod(pod() | {"spec": spec}), PodView | Unreadable)
    assert isinstance(read_node(pod() | {"status": spec}), NodeView | Unreadable)
