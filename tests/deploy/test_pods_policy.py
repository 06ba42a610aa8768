"""The policy about pods, its CEL evaluated: which containers it refuses."""

from typing import Any

import cel
import pytest

from tests.e2e.rig.controlplane.tenants import MANIFESTS, manifests_of

(POLICY,) = [
    body["spec"]
    for body in manifests_of(MANIFESTS)
    if body["kind"] == "ValidatingAdmissionPolicy" and body["metadata"]["name"] == "gpuplan-pods"
]


def container(name: str, *resources: str) -> dict[str, Any]:
    return {"name": name, "resources": {"limits": dict.fromkeys(resources, "1")}}


def evaluate(expression: str, variables: dict[str, Any]) -> Any:
    return cel.evaluate(expression, {"variables": variables, **variables})


def verdict(spec: dict[str, Any]) -> tuple[bool, str]:
    """Whether the pod is admitted, and what its owner reads if not."""
    known: dict[str, Any] = {"object": {"spec": spec}}
    for variable in POLICY["variables"]:
        known[variable["name"]] = evaluate(variable["expression"], known)
    (rule,) = POLICY["validations"]
    let_in = evaluate(rule["expression"], known)
    return let_in, "" if let_in else evaluate(rule["messageExpression"], known)


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


def test_two_containers_may_request_a_kind_each_and_one_may_have_no_resources() -> None:
    containers = [container("a", "nvidia.com/mig-1g.10gb"), container("b", "nvidia.com/gpu"), {"name": "c"}]
    assert verdict({"containers": containers}) == (True, "")
