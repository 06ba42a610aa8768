"""The rule about pods: one request that keeps it and one that it refuses."""

from tests.builders.objects import Json, manifest, pod
from tests.e2e.policy_pairs import Pair
from tests.e2e.policy_rig import post


def requesting(*resources: str) -> Json:
    return manifest(pod("rules-kinds", requests=dict.fromkeys(resources, "1")))


PATH = "/api/v1/namespaces/default/pods"
PODS = [
    Pair(
        policy="gpuplan-pods",
        rule="a container can request an MPS slice and no other GPU resource",
        keeps=lambda rig: post(rig.admin, PATH, requesting("nvidia.com/mig-1g.10gb", "example.com/nic", "cpu")),
        breaks=lambda rig: post(rig.admin, PATH, requesting("nvidia.com/mig-1g.10gb", "nvidia.com/gpu-10gb")),
        says="container main requests two kinds of GPU resource",
    ),
]
