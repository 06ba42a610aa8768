"""The policies about pods, their CEL evaluated: which containers they refuse."""

from typing import Any

import cel
import pytest

from tests.builders import objects
from tests.e2e.rig.controlplane.tenants import MANIFESTS, manifests_of

KINDS, REQUESTS, AMOUNTS = "gpuplan-pods", "gpuplan-mps-requests", "gpuplan-amounts"
POLICIES = {
    body["metadata"]["name"]: body["spec"]
    for body in manifests_of(MANIFESTS)
    if body["kind"] == "ValidatingAdmissionPolicy" and body["metadata"]["name"] in (KINDS, REQUESTS, AMOUNTS)
}


def container(name: str, *resources: str, count: str = "1", env: str = "") -> dict[str, Any]:
    return objects.container(name, dict.fromkeys(resources, count), env={"A": "b", env: "all"} if env else None)


def evaluate(expression: str, variables: dict[str, Any]) -> Any:
    return cel.evaluate(expression, {"variables": variables, **variables})


def verdict(spec: dict[str, Any], policy: str = KINDS) -> tuple[bool, str]:
    """Whether the pod is admitted, and what its owner reads if not."""
    known: dict[str, Any] = {"object": {"spec": spec}}
    for variable in POLICIES[policy]["variables"]:
        known[variable["name"]] = evaluate(variable["expression"], known)
    for rule in POLICIES[policy]["validations"]:
        if not evaluate(rule["expression"], known):
            return False, evaluate(rule["messageExpression"], known)
    return True, ""


@pytest.mark.parametrize(
    "resources",
    [
        (),
        ("cpu", "memory", "example.com/nic"),
        ("nvidia.com/gpu",),
        ("nvidia.com/mig-1g.10gb", "cpu"),
        ("nvidia.com/gpu-10gb", "nvidia.com/nic"),
        ("aliyun.com/gpu-mem", "aliyun.com/other"),
        ("nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb"),
        ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb.me"),
    ],
)
def test_a_container_with_one_gpu_resource_or_without_slices_is_admitted(resources: tuple[str, ...]) -> None:
    assert verdict({"containers": [container("main", *resources)]}) == (True, "")


@pytest.mark.parametrize(
    "resources",
    [
        ("nvidia.com/gpu", "nvidia.com/gpu-10gb"),
        ("nvidia.com/gpu-10gb", "nvidia.com/mig-1g.5gb.me"),
        ("nvidia.com/gpu.shared", "nvidia.com/gpu-10gb"),
        ("aliyun.com/gpu-mem", "nvidia.com/gpu-10gb"),
    ],
)
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_a_container_with_two_kinds_is_refused_by_name(resources: tuple[str, ...], kind: str) -> None:
    spec = {"containers": [container("plain")], kind: [container("crowded", *resources)]}
    let_in, message = verdict(spec)
    assert not let_in
    assert message.startswith("container crowded requests two kinds of GPU resource")


@pytest.mark.parametrize("amount", ["0", "1", "8", "999", "1000", "1k", "1e3", 7])
def test_an_amount_that_a_node_may_have_is_admitted(amount: str | int) -> None:
    limits = {"nvidia.com/mig-1g.10gb": amount, "cpu": "1e999"}
    assert verdict({"containers": [{"name": "main", "resources": {"limits": limits}}]}, AMOUNTS) == (True, "")


@pytest.mark.parametrize("amount", ["1001", "1Ki", "2k", "1e4", "1e999", "18446744073709551617", "1M", 5000])
@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu-10gb"])
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_an_amount_that_no_node_has_is_refused(amount: str | int, resource: str, kind: str) -> None:
    odd = {"name": "odd", "resources": {"limits": {resource: amount}}}
    let_in, message = verdict({"containers": [container("plain")], kind: [odd]}, AMOUNTS)
    assert not let_in
    assert message.startswith("container odd requests more than 1000 of a GPU resource")


def test_two_containers_may_request_a_kind_each_and_one_may_have_no_resources() -> None:
    containers = [container("a", "nvidia.com/mig-1g.10gb"), container("b", "nvidia.com/gpu"), {"name": "c"}]
    assert verdict({"containers": containers}) == (True, "")


@pytest.mark.parametrize(
    "asked",
    [
        container("main", "nvidia.com/gpu-10gb"),
        container("main", "nvidia.com/gpu-10gb", env="CUDA_VISIBLE_DEVICES"),
        container("main", "aliyun.com/gpu-mem", count="10"),
        container("main", "nvidia.com/gpu", count="8", env="NVIDIA_VISIBLE_DEVICES"),
        container("main", "nvidia.com/mig-1g.10gb", count="2", env="CUDA_MPS_PIPE_DIRECTORY"),
        {"name": "main"},
    ],
)
def test_a_container_with_one_share_and_its_limits_is_admitted(asked: dict[str, Any]) -> None:
    assert verdict({"containers": [asked]}, REQUESTS) == (True, "")


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (container("bad", "nvidia.com/gpu-10gb", count="2"), "requests several MPS slices"),
        (container("bad", "nvidia.com/gpu.shared", count="2"), "requests several MPS slices"),
        (container("bad", "nvidia.com/gpu-10gb", env="NVIDIA_VISIBLE_DEVICES"), "remove them from env"),
        (container("bad", "aliyun.com/gpu-mem", env="CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "remove them from env"),
    ],
)
@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_two_shares_or_other_limits_are_refused(asked: dict[str, Any], words: str, kind: str) -> None:
    let_in, message = verdict({"containers": [container("plain")], kind: [asked]}, REQUESTS)
    assert not let_in
    assert message.startswith("container bad ")
    assert words in message
