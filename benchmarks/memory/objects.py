"""A cluster of full size as an API server lists it: nodes, pods, plans and Leases as JSON, one at a time.

Takes sizes, returns objects with everything that real ones have, read by the controller or not: dozens of labels,
managed fields, conditions, container statuses. The same sizes give the same objects. Nothing is kept.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from crds.v1alpha1 import paths
from crds.v1alpha1.names import API_VERSION, KIND, LABEL_PARTITIONING, NAMESPACE, agent_lease
from crds.v1alpha1.plan import effective_items, item_hash
from crds.v1alpha1.spec import PlanSpec
from kube.leases import lease_path

Json = dict[str, Any]
PRODUCT, MODEL = "NVIDIA-H100-80GB-HBM3", "NVIDIA H100 80GB HBM3"
LAYOUT = (("1g.10gb", 0, 1), ("1g.10gb", 1, 1), ("3g.40gb", 4, 4))
"""Of each GPU; half of the instances are held."""
SINCE = "2026-01-01T00:00:00Z"
_NATIVE = 3
"""Of so many bound pods one holds nothing of a GPU, as those of DaemonSets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How many of each there are; `pending` of the pods have no node."""

    nodes: int
    gpus: int
    pods: int
    pending: int


def collections(sizes: Sizes) -> dict[str, tuple[int, Callable[[int], Json]]]:
    """By path of the list: how many objects, and the one of a number."""
    return {
        paths.NODES: (sizes.nodes, lambda number: _node(number, sizes)),
        paths.PLANS: (sizes.nodes, lambda number: _plan(number, sizes)),
        paths.PODS: (sizes.pods, lambda number: _pod(number, sizes)),
        lease_path(NAMESPACE): (sizes.nodes, _lease),
    }


def _name(number: int) -> str:
    return f"gpu-node-{number:05}"


def _metadata(name: str, kind: str, *managers: str, **more: Any) -> Json:
    fields: Json = {f"f:{field}": {".": {}, "f:name": {}, "f:value": {}} for field in ("metadata", "spec", "status")}
    return {
        "name": name,
        "uid": f"uid-{kind}-{name}",
        "resourceVersion": "1",
        "creationTimestamp": SINCE,
        "managedFields": [
            {"manager": manager, "operation": "Update", "time": SINCE, "fieldsType": "FieldsV1", "fieldsV1": fields}
            for manager in managers
        ],
        **more,
    }


def _node(number: int, sizes: Sizes) -> Json:
    name = _name(number)
    features = {f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{feature}": "true" for feature in range(60)}
    labels = {
        **features,
        LABEL_PARTITIONING: "mig",
        "kubernetes.io/hostname": name,
        "nvidia.com/gpu.count": str(sizes.gpus),
        "nvidia.com/gpu.memory": "81559",
        "nvidia.com/gpu.product": PRODUCT,
        "topology.kubernetes.io/zone": f"zone-{number % 3}",
    }
    amounts = {
        "cpu": "192",
        "memory": "2113413480Ki",
        "pods": "110",
        "ephemeral-storage": "1880G",
        "hugepages-2Mi": "0",
    }
    for profile, _, _ in LAYOUT:
        resource = f"nvidia.com/mig-{profile}"
        amounts[resource] = str(int(amounts.get(resource, 0)) + sizes.gpus)
    conditions = [
        {"type": kind, "status": "False", "lastHeartbeatTime": SINCE} for kind in ("MemoryPressure", "DiskPressure")
    ]
    images = [
        {"names": [f"registry.example.com/image-{image}@sha256:{image:064}"], "sizeBytes": 1} for image in range(50)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _metadata(name, "node", "kubelet", "nfd", labels=labels, annotations={"csi": "x" * 200}),
        "spec": {
            "podCIDR": "10.0.0.0/24",
            "taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule", "value": "present"}],
        },
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [*conditions, {"type": "Ready", "status": "True", "lastHeartbeatTime": SINCE}],
            "images": images,
        },
    }


def _plan(number: int, sizes: Sizes) -> Json:
    name = _name(number)
    held = _held_here(number, sizes)
    items, reports = [], []
    for index in range(sizes.gpus):
        uuid = f"GPU-{number:08x}-{index:04x}-4000-8000-000000000000"
        instances = [{"profile": profile, "start": start} for profile, start, _ in LAYOUT]
        items.append({"index": index, "uuid": uuid, "mig": {"instances": instances}})
        reports.append(_report(name, uuid, index, held))
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": _metadata(name, "plan", "gpuplan-controller", "gpuplan-agent", generation=3),
        "spec": {"nodeName": name, "planned": {"gpus": items}},
        "status": {
            "observedGeneration": 3,
            "node": {"uid": f"uid-node-{name}"},
            "gpus": reports,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "AsPlanned",
                    "observedGeneration": 3,
                    "message": "",
                    "lastTransitionTime": SINCE,
                }
            ],
        },
    }


def _report(node: str, uuid: str, index: int, held: int) -> Json:
    partitions = []
    for position, (profile, start, size) in enumerate(LAYOUT):
        place = index * len(LAYOUT) + position
        partition = {
            "resource": f"nvidia.com/mig-{profile}",
            "uuid": f"MIG-{uuid[4:-1]}{position}",
            "start": start,
            "size": size,
            "memoryMiB": 9984 * size,
            "state": "Used" if place < held else "Free",
        }
        partitions.append({**partition, "pod": f"team/{node}-{place}"} if place < held else partition)
    return {
        "index": index,
        "uuid": uuid,
        "model": MODEL,
        "state": "Ready",
        "migMode": "Enabled",
        "planHash": _hash(index, uuid),
        "partitions": partitions,
    }


@lru_cache(maxsize=1)
def _hash(index: int, uuid: str) -> str:
    instances = [{"profile": profile, "start": start} for profile, start, _ in LAYOUT]
    item = {"index": index, "uuid": uuid, "mig": {"instances": instances}}
    (found,) = effective_items(PlanSpec.read({"nodeName": "n", "planned": {"gpus": [item]}})).values()
    return item_hash(found)


def _bound_here(number: int, sizes: Sizes) -> int:
    bound = sizes.pods - sizes.pending
    return bound // sizes.nodes + (number < bound % sizes.nodes)


def _held_here(number: int, sizes: Sizes) -> int:
    """How many of a node's pods hold an instance."""
    bound = _bound_here(number, sizes)
    return min(bound - bound // _NATIVE, sizes.gpus * len(LAYOUT))


def _pod(number: int, sizes: Sizes) -> Json:
    if number < sizes.pending:
        profile = ("1g.10gb", "2g.20gb", "3g.40gb", "1g.10gb")[number % 4]
        return _raw_pod(f"job-{number:06}", number, requests=f"nvidia.com/mig-{profile}")
    place, node = divmod(number - sizes.pending, sizes.nodes)
    name = _name(node)
    held = place < _held_here(node, sizes)
    requests = f"nvidia.com/mig-{LAYOUT[place % len(LAYOUT)][0]}" if held else ""
    return _raw_pod(f"{name}-{place}", number, requests=requests, node=name)


def _raw_pod(name: str, number: int, *, requests: str, node: str = "") -> Json:
    amounts = {"cpu": f"{1 + number % 4}", "memory": f"{4 << number % 3}Gi", **({requests: "1"} if requests else {})}
    mounts = [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}]
    container = {
        "name": "main",
        "image": f"registry.example.com/team/image:{number % 50}",
        "args": ["--config", "x" * 120],
        "env": [{"name": f"SETTING_{setting}", "value": f"value-{number}-{setting}"} for setting in range(12)],
        "resources": {"limits": amounts, "requests": amounts},
        "volumeMounts": mounts,
    }
    spec: Json = {
        "containers": [container],
        "initContainers": [{**container, "name": "init", "resources": {"requests": {"cpu": "100m"}}}],
        "schedulerName": "default-scheduler",
        "serviceAccountName": "default",
        "priority": 0,
        "tolerations": [
            {"key": "nvidia.com/gpu", "operator": "Exists"},
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            },
        ],
        "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
        **({"nodeName": node} if node else {}),
    }
    waits = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/5000 nodes " + "x" * 200,
    }
    runs = [{"type": kind, "status": "True", "lastTransitionTime": SINCE} for kind in ("PodScheduled", "Ready")]
    started = {"name": "main", "ready": True, "restartCount": 0, "image": "i", "imageID": "sha256:" + "0" * 64}
    status = {"phase": "Running", "conditions": runs, "containerStatuses": [started], "podIP": "10.0.0.1"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"job-{number // 8}", "uid": f"uid-job-{number // 8}"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": _metadata(
            name,
            "pod",
            "kube-controller-manager",
            "kubelet",
            namespace="team",
            labels={"app": f"app-{number % 200}", "job-name": f"job-{number // 8}", "team": f"team-{number % 20}"},
            annotations={"checksum/config": f"{number:064}"},
            ownerReferences=[{**owner, "controller": True}],
        ),
        "spec": spec,
        "status": status if node else {"phase": "Pending", "conditions": [waits]},
    }


def _lease(number: int) -> Json:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": _metadata(agent_lease(_name(number)), "lease", "gpuplan-agent", namespace=NAMESPACE),
        "spec": {"holderIdentity": _name(number), "renewTime": "2026-01-01T00:00:00.000000Z"},
    }
