"""A policy of the cluster's owner refuses the plan of one node, on a real control plane."""

import copy
from pathlib import Path
from typing import Any

from crds.v1alpha1 import names
from kube import apply
from kube.errors import ApiError
from sandbox.cli.manifests import load
from sandbox.cluster import Cluster
from tests.e2e.real_cluster import PLANS
from tests.e2e.rig.controlplane.audit import audited
from tests.e2e.test_scenarios import SETTLE_SECONDS, cluster, said, servers, starts
from tests.sandbox.test_crashes import SURVIVORS, running
from tests.waiting import eventually

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
SENTENCE = "this node is not to be planned on Sundays"
__all__ = ["cluster", "said", "servers", "starts"]  # fixtures


def two_nodes(found: Cluster) -> None:
    """Two equal nodes, `first` and `second`, each with its plan answered by its agent."""
    made = next(body for body in load([str(SURVIVORS.parent / "mig")]) if body["metadata"]["name"] == "a100")
    nodes = []
    for name in ("first", "second"):
        node = copy.deepcopy(made)
        node["metadata"]["name"] = name
        nodes.append(node)
    found.start(nodes)
    eventually(
        lambda: (
            len(found.plans()) == 2 and all(condition(one, "AgentAlive")["status"] == "True" for one in found.plans())
        ),
        "two plans with living agents",
        SETTLE_SECONDS,
    )


def condition(found: dict[str, Any], kind: str) -> dict[str, Any]:
    conditions = (found.get("status") or {}).get("conditions") or []
    return next((one for one in conditions if one["type"] == kind), {"status": "", "reason": ""})


def refuse_plan(found: Cluster, name: str) -> None:
    """An admission policy as a customer may have it, once it is in force."""
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "quiet"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [names.GROUP],
                        "apiVersions": ["*"],
                        "operations": ["UPDATE"],
                        "resources": [names.PLURAL],
                    }
                ]
            },
            "validations": [
                {
                    "expression": f"object.metadata.name != '{name}' || object.spec == oldObject.spec",
                    "message": SENTENCE,
                }
            ],
        },
    }
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "quiet"},
        "spec": {"policyName": "quiet", "validationActions": ["Deny"]},
    }
    apply.create(found.api, f"{ADMISSION}/validatingadmissionpolicies", policy)
    apply.create(found.api, f"{ADMISSION}/validatingadmissionpolicybindings", binding)

    def refused() -> bool:
        try:
            apply.merge_patch(found.api, f"{PLANS}/{name}?dryRun=All", {"spec": {"paused": True}})
        except ApiError as error:
            return SENTENCE in error.message
        return False

    eventually(refused, "the policy is in force")


def gpu_pod(name: str) -> dict[str, Any]:
    made = next(body for body in load([str(SURVIVORS.parent / "mig")]) if body["metadata"]["name"] == "infer-a")
    pod = copy.deepcopy(made)
    pod["metadata"]["name"] = name
    return pod


def test_pods_of_a_node_whose_plan_is_refused_run_elsewhere(cluster: Cluster, tmp_path: Path) -> None:
    two_nodes(cluster)
    refuse_plan(cluster, "first")
    for name in ("a", "b"):
        cluster.create(gpu_pod(name))
    eventually(lambda: running(cluster) == {"a", "b"}, "both pods run", SETTLE_SECONDS)

    assert {pod["spec"]["nodeName"] for pod in cluster.pods()} == {"second"}
    tried = [
        event["responseStatus"]["code"]
        for event in audited(tmp_path / "audit.log")
        if event["verb"] == "patch" and event["requestURI"].split("?")[0].endswith("/gpupartitionplans/first")
    ]
    assert tried, "the refused node was planned first"
    assert set(tried) == {422}
    assert len(tried) <= 6
    events = apply.get(cluster.api, "/api/v1/events")["items"]
    assert {event["involvedObject"]["name"] for event in events if event["reason"] == "PlanWritten"} == {"second"}
    assert not [event for event in events if event["reason"] == "Planned" and " first" in event["message"]]
