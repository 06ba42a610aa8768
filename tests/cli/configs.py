"""Configs of NVIDIA's device plugin, Nodes and plans, as `gpuplan import` and `gpuplan export` read them."""

from collections.abc import Callable
from typing import Any

from tests.builders import objects

Run = Callable[..., tuple[int, list[dict[str, Any]], str]]
"""Exit code, documents on stdout, stderr."""
PRODUCT = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
MPS_4 = "version: v1\nsharing: {mps: {resources: [{name: gpu, replicas: 4}]}}"


def config_map(name: str = "plugin-configs", **data: str) -> dict[str, Any]:
    return objects.config_map(name, data, namespace="gpu-operator")


def node(name: str = "n1", count: int | str = 2, **labels: str) -> dict[str, Any]:
    found = {"nvidia.com/gpu.count": str(count), **PRODUCT, **labels}
    return objects.node(name, labels=found)


def items(plans: list[dict[str, Any]]) -> dict[str, Any]:
    return {plan["metadata"]["name"]: plan["spec"]["gpus"] for plan in plans}


def plan(name: str, *gpus: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return objects.manifest(objects.plan(name, spec={"gpus": list(gpus), **spec}))
