"""The policies on the largest objects that the API holds: no expression may run out of its cost budget.

A policy that does so refuses the request (failurePolicy Fail), on the one big node of a cluster and nowhere else.
"""

from typing import Any

from crds.v1alpha1 import names
from kube import apply
from tests.e2e import fleet
from tests.e2e.real_cluster import (
    APPLY,
    JSON_PATCH,
    MERGE,
    NODES,
    PLANS,
    RealCluster,
    call,
    plan,
)
from tests.waiting import eventually

BIG = "costs-big"
MANAGER = {"fieldManager": names.CONTROLLER_MANAGER, "force": "true"}


def big_node() -> dict[str, Any]:
    """More labels, taints, conditions, images and resources than real nodes have."""
    found = fleet.node(BIG, **{f"example.dev/label-{i}": "v" * 63 for i in range(200)})
    found["metadata"]["annotations"] |= {f"example.dev/note-{i}": "v" * 1000 for i in range(150)}
    found["spec"]["taints"] = [{"key": f"example.dev/taint-{i}", "effect": "PreferNoSchedule"} for i in range(60)]
    for amounts in ("capacity", "allocatable"):
        extended = {f"example.dev/resource-{i}": "1" for i in range(150)}
        found["status"][amounts] = {**found["status"][amounts], **extended}
    found["status"]["images"] = [
        {"names": [f"registry.example/image-{i}@sha256:{'0' * 64}", f"registry.example/image-{i}:v1"], "sizeBytes": i}
        for i in range(200)
    ]
    found["status"]["conditions"] += [
        {"type": f"Condition{i}", "status": "False", "reason": "R", "message": "m" * 200} for i in range(60)
    ]
    return found


def full(*, start: int = 0, gpus: int = 16) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "uuid": f"GPU-{index:032x}",
            "mig": {"instances": [{"profile": "1g.24gb+me.all", "start": (i + start) % 16} for i in range(16)]},
        }
        for index in range(gpus)
    ]


def test_the_agents_writes_to_a_big_node(cluster: RealCluster) -> None:
    apply.create(cluster.admin, NODES, big_node())
    pod = eventually(lambda: fleet.daemon_pod(cluster, "gpuplan-agent", BIG), "an agent pod on the big node")
    agent = cluster.bearer(cluster.token("gpuplan-agent", pod=pod))
    path = f"{NODES}/{BIG}"
    taint = [{"op": "add", "path": "/spec/taints/-", "value": {"key": names.TAINT_CHANGING, "effect": "NoSchedule"}}]
    assert call(agent, "PATCH", path, taint, JSON_PATCH).allowed
    amounts = {f"nvidia.com/mig-{i}g.10gb": "7" for i in range(1, 8)}
    body = {"status": {"capacity": amounts, "allocatable": amounts}}
    answer = call(agent, "PATCH", f"{path}/status", body, MERGE)
    assert answer.allowed, answer.message
    apply.delete(cluster.admin, path)


def test_the_controllers_writes_to_a_full_plan(cluster: RealCluster) -> None:
    api = fleet.controller(cluster)
    path = f"{PLANS}/{BIG}"
    apply.create(api, PLANS, plan(BIG))
    body = plan(BIG, planned={"gpus": full()})
    assert call(api, "PATCH", path, body, APPLY, **MANAGER).allowed
    body = plan(BIG, planned={"gpus": full(start=1)})
    assert call(api, "PATCH", path, body, APPLY, **MANAGER).allowed
    frozen = {"mode": "Manual", "gpus": [{"index": index, "whole": {}} for index in range(16)]}
    apply.merge_patch(cluster.admin, path, {"spec": frozen})
    half = [item for item in full(start=1) if item["index"] % 2]
    answer = call(api, "PATCH", path, plan(BIG, planned={"gpus": half}), APPLY, **MANAGER)
    assert answer.allowed, answer.message
    answer = call(api, "PATCH", path, plan(BIG, planned={"gpus": full()}), APPLY, **MANAGER)
    assert answer.status == 403
    assert "this plan is Manual or paused" in answer.message
    apply.delete(cluster.admin, path)


def test_a_persons_write_to_a_full_plan(cluster: RealCluster) -> None:
    name = f"{BIG}-person"
    path, api = f"{PLANS}/{name}", fleet.controller(cluster)
    apply.create(api, PLANS, plan(name))
    assert call(api, "PATCH", path, plan(name, planned={"gpus": full()}), APPLY, **MANAGER).allowed
    pins = [{key: value for key, value in item.items() if key != "uuid"} for item in full(start=2)]
    for spec in ({"gpus": pins}, {"gpus": full(start=3)}, {"paused": True}):
        answer = call(cluster.admin, "PATCH", path, {"spec": spec}, MERGE)
        assert answer.allowed, answer.message
    refused = call(cluster.admin, "PATCH", path, {"spec": {"planned": {"gpus": full(start=1)}}}, MERGE)
    assert refused.status == 403
    assert "spec.planned is written by the gpuplan controller" in refused.message
    apply.delete(cluster.admin, path)


def test_the_controllers_condition_in_a_full_status(cluster: RealCluster) -> None:
    path = f"{PLANS}/{BIG}-status"
    apply.create(cluster.admin, PLANS, plan(f"{BIG}-status"))
    partitions = [
        {
            "resource": "nvidia.com/mig-1g.24gb.me.all",
            "uuid": f"MIG-{i:032x}",
            "state": "Used",
            "pod": f"{'n' * 63}/{'p' * 250}",
        }
        for i in range(48)
    ]
    gpus = [
        {"index": i, "uuid": f"GPU-{i:032x}", "state": "Ready", "message": "m" * 1000, "partitions": partitions}
        for i in range(16)
    ]
    status = {"status": {"observedGeneration": 1, "gpus": gpus}}
    agent = cluster.agent_of(f"{BIG}-status")
    apply.apply_status(agent, path, {**plan(f"{BIG}-status"), **status}, manager=names.AGENT_MANAGER)
    alive = {
        "type": "AgentAlive",
        "status": "True",
        "reason": "Heartbeat",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    body = {**plan(f"{BIG}-status"), "status": {"conditions": [alive]}}
    answer = call(fleet.controller(cluster), "PATCH", f"{path}/status", body, APPLY, **MANAGER)
    assert answer.allowed, answer.message
    apply.delete(cluster.admin, path)


def test_the_nomination_of_a_big_pod(cluster: RealCluster) -> None:
    path = "/api/v1/namespaces/default/pods"
    containers = [{"name": f"c{i}", "image": "none"} for i in range(60)]
    body = {"metadata": {"name": BIG}, "spec": {"containers": containers, "nodeSelector": {"no": "where"}}}
    apply.create(cluster.admin, path, body)
    statuses = [
        {
            "name": f"c{i}",
            "image": "registry.example/" + "i" * 200,
            "imageID": "sha256:" + "0" * 64,
            "ready": False,
            "restartCount": 3,
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "m" * 1000}},
        }
        for i in range(60)
    ]
    written = call(cluster.admin, "PATCH", f"{path}/{BIG}/status", {"status": {"containerStatuses": statuses}}, MERGE)
    assert written.allowed, written.message
    body = {"status": {"nominatedNodeName": "n1"}}
    answer = call(fleet.controller(cluster), "PATCH", f"{path}/{BIG}/status", body, MERGE)
    assert answer.allowed, answer.message
    apply.delete(cluster.admin, f"{path}/{BIG}", grace_seconds=0)
