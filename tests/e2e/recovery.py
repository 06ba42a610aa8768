"""Nodes, pods and readings of plans for the tests of recovery.

`PlanVersions` keeps every version of every plan; the other functions read or change one cluster.
"""

import time
from collections.abc import Mapping
from typing import Any

from kube import apply
from sandbox.cluster import Cluster
from tests.builders.objects import container, manifest, node, pod
from tests.e2e.real_cluster import PLANS
from tests.e2e.test_scenarios import SETTLE_SECONDS
from tests.waiting import eventually

PODS = "/api/v1/namespaces/default/pods"


GPUS = {"silent": 1, "leaving": 1, "returning": 1, "lossy": 2, "steady": 1, "last": 1, "full": 2}


class PlanVersions:
    """Keeps every version of every plan that the watch delivered."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, dict[str, Any]]] = []

    def on_change(self, _key: object, _old: object, new: dict[str, Any] | None) -> None:
        if new is not None:
            self.seen.append((time.monotonic(), new))

    def since(self, moment: float, name: str) -> list[dict[str, Any]]:
        """The versions of one plan that arrived after the moment, oldest first."""
        return [body for when, body in self.seen if when >= moment and body["metadata"]["name"] == name]


def gpu_node(name: str, gpus: int) -> dict[str, Any]:
    raw = manifest(node(name))
    raw["metadata"]["labels"] |= {
        "nvidia.com/gpu.count": str(gpus),
        "nvidia.com/gpu.memory": "81559",
        "scenario": name,
    }
    return raw


def pod_spec(scenario: str, resource: str) -> dict[str, Any]:
    """One container that runs for ever on the scenario's nodes."""
    main = container(limits={resource: 1}, sleep="infinity")
    return {"nodeSelector": {"scenario": scenario}, "terminationGracePeriodSeconds": 1, "containers": [main]}


def add_pod(found: Cluster, name: str, scenario: str, resource: str, **spec: Any) -> None:
    """`spec` goes before what `pod_spec` has."""
    body = pod(name, **{**pod_spec(scenario, resource), **spec})
    apply.create(found.api, PODS, manifest(body, status=False))


def runs(found: Cluster, name: str) -> bool:
    return bool(apply.get(found.api, f"{PODS}/{name}").get("status", {}).get("phase") == "Running")


def await_running(found: Cluster, *pods: str) -> None:
    eventually(lambda: all(runs(found, name) for name in pods), f"pods {pods} run", SETTLE_SECONDS)


def await_ready(found: Cluster, plan: str) -> None:
    eventually(lambda: ready(found, plan) == "True", f"plan {plan} is Ready", SETTLE_SECONDS)


def conditions(plan: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["type"]: each for each in plan.get("status", {}).get("conditions") or []}


def ready(found: Cluster, name: str) -> str:
    """The status of Ready, or the empty string."""
    return str(conditions(apply.get(found.api, f"{PLANS}/{name}")).get("Ready", {}).get("status", ""))


def partitions(found: Cluster, name: str) -> list[str]:
    """Resources of the MIG partitions in the plan's status."""
    gpus = apply.get(found.api, f"{PLANS}/{name}")["status"].get("gpus", [])
    resources = [each["resource"] for gpu in gpus for each in gpu.get("partitions", [])]
    return sorted(each for each in resources if "/mig-" in each)


def kstatus(plan: Mapping[str, Any]) -> str:
    """How kstatus reads an object of an unknown kind, by the rules of its README (cli-utils, pkg/kstatus)."""
    status = plan.get("status") or {}
    if status.get("observedGeneration", plan["metadata"]["generation"]) != plan["metadata"]["generation"]:
        return "InProgress"
    for each in status.get("conditions") or []:
        if each["type"] == "Reconciling" and each["status"] == "True":
            return "InProgress"
        if each["type"] == "Stalled" and each["status"] == "True":
            return "Failed"
    found = conditions(plan).get("Ready")
    return "Current" if found is None or found["status"] == "True" else "InProgress"


def wait_for(seconds: float, began: float) -> None:
    """Until so many seconds have gone by; faults of time need time."""
    eventually(lambda: time.monotonic() - began >= seconds, "time goes by", seconds + 10)
