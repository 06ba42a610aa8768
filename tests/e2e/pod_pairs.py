"""The rule about pods: one request that keeps it and one that it refuses."""

from typing import Any

from tests.e2e.policy_pairs import Pair
from tests.e2e.policy_rig import post


def pod(*resources: str) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "resources": {"limits": dict.fromkeys(resources, "1")}}
    meta = {"name": "rules-kinds", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [container]}}


PATH = "/api/v1/namespaces/default/pods"
PODS = [
    Pair(
        policy="gpuplan-pods",
        rule="a container can request one GPU resource only",
        keeps=lambda rig: post(rig.admin, PATH, pod("nvidia.com/mig-1g.10gb", "example.com/nic", "cpu")),
        breaks=lambda rig: post(rig.admin, PATH, pod("nvidia.com/mig-1g.10gb", "nvidia.com/mig-2g.20gb")),
        says="container main requests two kinds of GPU resource",
    ),
]
