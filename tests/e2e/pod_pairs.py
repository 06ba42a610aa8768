"""The rule about pods: one request that keeps it and one that it refuses."""

from tests.builders.objects import Json, manifest, pod
from tests.e2e.policy_pairs import Pair
from tests.e2e.policy_rig import post


def requesting(*resources: str, count: str = "1", env: str = "") -> Json:
    found = manifest(pod("rules-kinds", requests=dict.fromkeys(resources, count)))
    if env:
        found["spec"]["containers"][0]["env"] = [{"name": env, "value": "all"}]
    return found


PATH = "/api/v1/namespaces/default/pods"
PODS = [
    Pair(
        policy="gpuplan-pods",
        rule="a container can request an MPS slice and no other GPU resource",
        keeps=lambda rig: post(rig.admin, PATH, requesting("nvidia.com/mig-1g.10gb", "example.com/nic", "cpu")),
        breaks=lambda rig: post(rig.admin, PATH, requesting("nvidia.com/mig-1g.10gb", "nvidia.com/gpu-10gb")),
        says="container main requests two kinds of GPU resource",
    ),
    Pair(
        policy="gpuplan-amounts",
        rule="a container can request at most 1000 of a GPU resource",
        keeps=lambda rig: post(rig.admin, PATH, requesting("nvidia.com/mig-1g.10gb", count="1000")),
        breaks=lambda rig: post(rig.admin, PATH, requesting("nvidia.com/mig-1g.10gb", count="1e999")),
        says="container main requests more than 1000 of a GPU resource",
    ),
    Pair(
        policy="gpuplan-mps-requests",
        rule="a container can request one MPS slice or replica",
        keeps=lambda rig: post(rig.admin, PATH, requesting("nvidia.com/gpu-10gb")),
        breaks=lambda rig: post(rig.admin, PATH, requesting("nvidia.com/gpu-10gb", count="2")),
        says="container main requests several MPS slices",
    ),
    Pair(
        policy="gpuplan-mps-requests",
        rule="a container with an MPS slice cannot set NVIDIA_VISIBLE_DEVICES or CUDA_MPS_*",
        keeps=lambda rig: post(rig.admin, PATH, requesting("nvidia.com/gpu", env="NVIDIA_VISIBLE_DEVICES")),
        breaks=lambda rig: post(rig.admin, PATH, requesting("nvidia.com/gpu.shared", env="CUDA_MPS_PIPE_DIRECTORY")),
        says="container main requests an MPS slice and sets",
    ),
]
