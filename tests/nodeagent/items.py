"""Items of a plan and pods, as the API holds them, in few words."""

from typing import Any

from tests.builders.objects import pod

Raw = dict[str, Any]
NODE = "gpu-node-1"
RUNNING = {"name": "main", "state": {"running": {}}}


def pod_json(key: tuple[str, str], resource: str, count: int, *, uid: str) -> Raw:
    """A pod of this node; `key` is namespace and name."""
    requests = {resource: str(count)}
    return pod(key[1], namespace=key[0], requests=requests, uid=uid, node=NODE, terminationGracePeriodSeconds=30)


def operator_pod(name: str, labels: Raw, path: str, *, status: Raw | None = None) -> Raw:
    """A pod of NVIDIA's operator that has `path` of the host."""
    return pod(
        name,
        namespace="gpu-operator",
        requests={},
        metadata={"labels": labels},
        volumes=[{"name": "host", "hostPath": {"path": path}}],
        status=status or started(),
    )


def started(phase: str = "Running") -> Raw:
    """The status of a pod whose container runs, whatever its phase says."""
    return {"phase": phase, "startTime": "t", "containerStatuses": [RUNNING]}


def mig(index: int, *instances: tuple[str, int] | str, uuid: str = "") -> Raw:
    """An item: ("1g.10gb", 0) is exact, "1g.10gb" or "1g.10gb*3" counts."""
    wire: list[Raw] = []
    for instance in instances:
        if isinstance(instance, tuple):
            wire.append({"profile": instance[0], "start": instance[1]})
        else:
            profile, _, count = instance.partition("*")
            wire.append({"profile": profile, **({"count": int(count)} if count else {})})
    return {"index": index, **({"uuid": uuid} if uuid else {}), "mig": {"instances": wire}}


def mps(index: int, *gigabytes: int, threads: int | None = None) -> Raw:
    more = {} if threads is None else {"threadPercent": threads}
    return {"index": index, "mps": {"slices": [{"memoryGB": n, **more} for n in gigabytes]}}


def replicas(index: int, count: int, **more: bool) -> Raw:
    return {"index": index, "mps": {"replicas": count, **more}}


def whole(index: int) -> Raw:
    return {"index": index, "whole": {}}
