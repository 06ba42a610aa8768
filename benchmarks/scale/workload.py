"""What the cluster of a run is made of: nodes with GPUs, pods, and when each pod arrives. All of it from a seed.

Takes sizes and a seed, returns Node and Pod objects, the GPUs of each node, and arrival times. Four of five nodes
are cut by MIG, the fifth is shared by MPS. A quarter of the MIG GPUs hold an idle instance that no pod requests, so
that agents must withdraw and destroy as well as create; some pods end after a while. Reads no clock.
"""

import random
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crds.v1alpha1.names import LABEL_PARTITIONING, LABEL_PRODUCT
from partitioning.layouts import Instance, Layout
from partitioning.models import GpuModel, model_for_product
from partitioning.resources import mig_resource, mps_resource_gb

PLATFORM = (("os", "linux"), ("arch", "amd64"))
PRODUCT = "NVIDIA-H100-80GB-HBM3"
NAMESPACE = "load"
MPS_NODES = 5
"""Every so many-th node is shared by MPS."""
MIX = (
    (mig_resource("1g.10gb"), 42),
    (mig_resource("2g.20gb"), 18),
    (mig_resource("3g.40gb"), 13),
    (mig_resource("1g.20gb"), 7),
    (mps_resource_gb(10), 15),
    (mps_resource_gb(20), 5),
)
"""What pods request, in percent."""
LEFT_BEHIND = ((Instance(start=0, size=8, profile="7g.80gb"),), (Instance(start=0, size=4, profile="4g.40gb"),))
LEFT_SHARE = 0.25
ENDING_SHARE = 0.2
LIFETIME_SECONDS = (60.0, 120.0)
ANNOTATION_SECONDS = "scale.gpuplan.dev/seconds"
"""After this long the pod's container ends; without it, it runs on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU as a run finds it."""

    uuid: str
    mig: bool
    layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One pod."""

    at_seconds: float
    """Since the first."""
    name: str
    resource: str
    ends_after_seconds: float | None


def model() -> GpuModel:
    """Of every GPU here."""
    found = model_for_product(PRODUCT)
    if found is None:
        raise LookupError(f"{PRODUCT} is not in the catalogue")
    return found


def node_names(count: int) -> tuple[str, ...]:
    return tuple(f"scale-{number:04}" for number in range(count))


def shared_by_mps(node: str) -> bool:
    """Instead of cut by MIG."""
    return int(node.rpartition("-")[2]) % MPS_NODES == MPS_NODES - 1


def gpus_of(node: str, count: int, seed: int) -> tuple[Gpu, ...]:
    """The same in the agents' processes and in this one."""
    rng = random.Random(f"{seed} {node}")
    mig = not shared_by_mps(node)
    found = []
    for index in range(count):
        left = rng.choice(LEFT_BEHIND) if mig and rng.random() < LEFT_SHARE else ()
        found.append(Gpu(uuid=f"GPU-{_uuid(node, index)}", mig=mig, layout=Layout.of(left)))
    return tuple(found)


def node_object(name: str, gpus: int) -> dict[str, Any]:
    """Big enough in all but GPUs; its GPU resources come when its kubelet takes them."""
    amounts = {"cpu": "128", "memory": "1Ti", "ephemeral-storage": "1Ti", "pods": "110"}
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "simulated"}]
    labels = {
        LABEL_PARTITIONING: "mps" if shared_by_mps(name) else "mig",
        LABEL_PRODUCT: PRODUCT,
        "nvidia.com/gpu.count": str(gpus),
        "kubernetes.io/hostname": name,
        **{f"{prefix}kubernetes.io/{name}": value for prefix in ("", "beta.") for name, value in PLATFORM},
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": conditions,
            "nodeInfo": _node_info(name),
        },
    }


def arrivals(count: int, *, per_second: float, seed: int) -> tuple[Arrival, ...]:
    """As independent users send them: exponential gaps, of this mean rate over the whole."""
    rng = random.Random(f"{seed} arrivals")
    gaps = [rng.expovariate(1.0) for _ in range(count)]
    scale = count / per_second / sum(gaps) if gaps else 0.0
    found, at_seconds = [], 0.0
    for number, gap in enumerate(gaps):
        at_seconds += gap * scale
        ends = rng.uniform(*LIFETIME_SECONDS) if rng.random() < ENDING_SHARE else None
        resource = _choose(rng, MIX)
        found.append(
            Arrival(at_seconds=at_seconds, name=f"pod-{number:05}", resource=resource, ends_after_seconds=ends)
        )
    return tuple(found)


def pod_object(arrival: Arrival) -> dict[str, Any]:
    """A bare pod with one container."""
    ends = arrival.ends_after_seconds
    amounts = {"cpu": "500m", "memory": "1Gi", arrival.resource: "1"}
    annotations = {} if ends is None else {ANNOTATION_SECONDS: f"{ends:.1f}"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": arrival.name, "namespace": NAMESPACE, "annotations": annotations},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "containers": [
                {"name": "main", "image": "example.invalid/work", "resources": {"requests": amounts, "limits": amounts}}
            ],
        },
    }


def _choose(rng: random.Random, mix: Sequence[tuple[str, int]]) -> str:
    return rng.choices([name for name, _ in mix], weights=[weight for _, weight in mix])[0]


def _node_info(name: str) -> dict[str, str]:
    empty = ("kernelVersion", "osImage", "containerRuntimeVersion", "kubeProxyVersion", "machineID", "systemUUID")
    facts = {"bootID": _uuid(name, "boot"), "kubeletVersion": "v1.36.3", "operatingSystem": "linux"}
    return {**dict.fromkeys(empty, ""), **facts, "architecture": "amd64"}


def _uuid(*parts: object) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, "/".join(map(str, parts))))
