"""The pairs of the policies about the controller and about other writers of plans; see policy_pairs."""

from typing import Any

from kubernetes.client import ApiClient

from crds.v1alpha1 import gpu_operator, names
from kube import apply
from tests.builders.objects import lease
from tests.e2e.policy_pairs import (
    ADD_TAINT,
    EVENTS,
    OTHER_PLAN,
    OWN_NODE,
    OWN_PLAN,
    OWNER,
    SECRETS,
    Pair,
    Try,
    event,
    own_lease,
)
from tests.e2e.policy_rig import (
    CHANGING,
    FROZEN,
    OTHER,
    OWN,
    POD,
    WHOLE,
    PolicyRig,
    condition,
    cut,
    delete,
    json_patch,
    merge,
    post,
    server_side,
)
from tests.e2e.real_cluster import CONTROLLER, LEASES, PLANS, Answer, plan

RECORD = {names.ANNOTATION_OPERATOR_LABELS: "{}"}


def planned(rig: PolicyRig, name: str, *items: dict[str, Any]) -> Answer:
    body = plan(name, planned={"gpus": list(items)})
    return server_side(rig.controller, f"{PLANS}/{name}", body, names.CONTROLLER_MANAGER)


def status(rig: PolicyRig, **fields: Any) -> Answer:
    """The controller's word in a plan's status."""
    return server_side(rig.controller, f"{OWN_PLAN}/status", {**plan(OWN), "status": fields}, names.CONTROLLER_MANAGER)


def without_our_taint(rig: PolicyRig) -> Answer:
    """What the controller does for a node whose agent has fallen silent."""
    apply.json_patch(rig.admin, OWN_NODE, [{**ADD_TAINT, "value": CHANGING}])
    taints = apply.get(rig.admin, OWN_NODE)["spec"]["taints"]
    place = [taint["key"] for taint in taints].index(names.TAINT_CHANGING)
    removal = {"op": "remove", "path": f"/spec/taints/{place}"}
    answer = json_patch(rig.controller, OWN_NODE, removal)
    apply.json_patch(rig.admin, OWN_NODE, [removal])
    return answer


def without_our_record(rig: PolicyRig) -> Answer:
    """What the controller does once the GPU Operator's labels are put back, also where it no longer manages them."""
    apply.merge_patch(rig.admin, OWN_NODE, {"metadata": {"annotations": RECORD}})
    removal = {"metadata": {"annotations": dict.fromkeys(RECORD)}}
    answer = merge(rig.controller, OWN_NODE, removal)
    apply.merge_patch(rig.admin, OWN_NODE, removal)
    return answer


def without_lease(rig: PolicyRig, name: str) -> Answer:
    """What the controller does with the Lease of a node that is gone."""
    apply.create(rig.admin, LEASES, lease(name))
    answer = delete(rig.controller, f"{LEASES}/{name}")
    apply.delete(rig.admin, f"{LEASES}/{name}")
    return answer


def of_controller(rule: str, keeps: Try, breaks: Try, says: str = "", policy: str = "gpuplan-controller") -> Pair:
    return Pair(policy=policy, rule=rule, keeps=keeps, breaks=breaks, says=says)


ALIVE = condition("AgentAlive", "True")
CONTROLLERS = [
    of_controller(
        "may not write this resource",
        lambda rig: post(rig.controller, LEASES, lease(CONTROLLER)),
        lambda rig: post(rig.controller, SECRETS, {"metadata": {"name": "rules"}}),
        "may not create secrets",
    ),
    of_controller(
        "labels, annotations, finalizers and owners are not its own",
        lambda rig: merge(rig.controller, f"{POD}/status", {"status": {"nominatedNodeName": OWN}}),
        lambda rig: merge(rig.controller, f"{POD}/status", {"metadata": {"annotations": {"a": "b"}}}),
    ),
    of_controller(
        "may write its own Lease only",
        lambda rig: post(rig.controller, LEASES, lease(CONTROLLER)),
        lambda rig: post(rig.controller, LEASES, own_lease()),
    ),
    of_controller(
        "may delete Leases of agents only",
        lambda rig: without_lease(rig, names.agent_lease(OWN)),
        lambda rig: without_lease(rig, names.CONTROLLER_LEASE),
    ),
    of_controller(
        "an Event must say who wrote it",
        lambda rig: post(rig.controller, EVENTS, event(CONTROLLER)),
        lambda rig: post(rig.controller, EVENTS, event("default-scheduler")),
    ),
    of_controller(
        "neither owners nor finalizers",
        lambda rig: post(rig.controller, PLANS, plan("rules-new")),
        lambda rig: post(
            rig.controller, PLANS, {**plan("rules-new"), "metadata": {"name": "rules-new", "ownerReferences": [OWNER]}}
        ),
    ),
    of_controller(
        "is-controller",
        lambda rig: post(rig.admin, SECRETS, {"metadata": {"name": "rules"}}),
        lambda rig: post(rig.controller, SECRETS, {"metadata": {"name": "rules"}}),
        "may not create secrets",
    ),
    of_controller(
        "nominatedNodeName only",
        lambda rig: merge(rig.controller, f"{POD}/status", {"status": {"nominatedNodeName": OWN}}),
        lambda rig: merge(rig.controller, f"{POD}/status", {"status": {"phase": "Failed"}}),
        policy="gpuplan-controller-cluster",
    ),
    of_controller(
        "may remove the taint gpuplan.dev/changing only",
        without_our_taint,
        lambda rig: json_patch(rig.controller, OWN_NODE, {**ADD_TAINT, "value": CHANGING}),
        policy="gpuplan-controller-cluster",
    ),
    of_controller(
        "of a node's labels it may write gpuplan.dev/node-agent only",
        lambda rig: merge(rig.controller, OWN_NODE, {"metadata": {"labels": {names.LABEL_NODE_AGENT: "true"}}}),
        lambda rig: merge(rig.controller, OWN_NODE, {"metadata": {"labels": {gpu_operator.DEVICE_PLUGIN: "false"}}}),
        policy="gpuplan-controller-cluster",
    ),
    of_controller(
        "of a node's annotations it may change gpuplan.dev/operator-labels only",
        without_our_record,
        lambda rig: merge(rig.controller, OWN_NODE, {"metadata": {"annotations": RECORD}}),
        policy="gpuplan-controller-cluster",
    ),
    of_controller(
        "is-controller",
        lambda rig: merge(rig.admin, f"{POD}/status", {"status": {"message": "m"}}),
        lambda rig: merge(rig.controller, f"{POD}/status", {"status": {"message": "m"}}),
        policy="gpuplan-controller-cluster",
    ),
    of_controller(
        "a new plan holds nodeName only",
        lambda rig: post(rig.controller, PLANS, plan("rules-new")),
        lambda rig: post(rig.controller, PLANS, plan("rules-new", mode="Auto")),
        policy="gpuplan-plans-controller",
    ),
    of_controller(
        "may write spec.planned only",
        lambda rig: planned(rig, OWN, cut(2)),
        lambda rig: merge(rig.controller, OWN_PLAN, {"spec": {"mode": "Manual"}}),
        policy="gpuplan-plans-controller",
    ),
    of_controller(
        "this plan is Manual or paused",
        lambda rig: planned(rig, FROZEN, cut(1)),  # 0 is pinned
        lambda rig: planned(rig, FROZEN, cut(0)),
        policy="gpuplan-plans-controller",
    ),
    of_controller(
        "people wrote in this plan",
        lambda rig: delete(rig.controller, OWN_PLAN),
        lambda rig: delete(rig.controller, f"{PLANS}/{FROZEN}"),
        policy="gpuplan-plans-controller",
    ),
    of_controller(
        "is-controller",
        lambda rig: merge(rig.admin, OWN_PLAN, {"spec": {"mode": "Manual"}}),
        lambda rig: merge(rig.controller, OWN_PLAN, {"spec": {"mode": "Manual"}}),
        policy="gpuplan-plans-controller",
    ),
    of_controller(
        "the conditions AgentAlive, Ready and ServedByDRA only",
        lambda rig: status(rig, conditions=[ALIVE]),
        lambda rig: status(rig, conditions=[ALIVE, condition("Applied", "False")]),
        policy="gpuplan-plans-controller-status",
    ),
    of_controller(
        "it may say that Ready is Unknown",
        lambda rig: status(rig, conditions=[ALIVE, condition("Ready", "Unknown")]),
        lambda rig: status(rig, conditions=[ALIVE, condition("Ready", "False")]),
        policy="gpuplan-plans-controller-status",
    ),
    of_controller(
        "is-controller",
        lambda rig: merge(rig.agent, f"{OWN_PLAN}/status", {"status": {"summary": {"mig": "1/1"}}}),
        lambda rig: merge(rig.controller, f"{OWN_PLAN}/status", {"status": {"summary": {"mig": "1/1"}}}),
        policy="gpuplan-plans-controller-status",
    ),
]


def status_of_others(api: ApiClient) -> Answer:
    return merge(api, f"{OWN_PLAN}/status", {"status": {"conditions": [condition("Ready", "True")]}})


def of_status(rule: str, keeps: Try, breaks: Try, says: str = "") -> Pair:
    return Pair(policy="gpuplan-plans-status", rule=rule, keeps=keeps, breaks=breaks, says=says)


STATUS = [
    of_status(
        "the status of a plan is written by gpuplan's agents and controller alone",
        lambda rig: merge(rig.admin, f"{OWN_PLAN}/status", {"status": {"observedGeneration": 1}}),  # as it is
        lambda rig: status_of_others(rig.admin),
    ),
    of_status(
        "not-an-agent",
        lambda rig: status_of_others(rig.agent),
        lambda rig: status_of_others(rig.admin),
        "the status of a plan is written by gpuplan's agents",
    ),
    of_status(
        "not-the-controller",
        lambda rig: status(rig, conditions=[ALIVE]),
        lambda rig: server_side(
            rig.admin,
            f"{OWN_PLAN}/status",
            {**plan(OWN), "status": {"conditions": [ALIVE]}},
            names.CONTROLLER_MANAGER,
        ),
        "the status of a plan is written by gpuplan's agents",
    ),
]


def of_authors(rule: str, keeps: Try, breaks: Try, says: str = "") -> Pair:
    return Pair(policy="gpuplan-plans-authors", rule=rule, keeps=keeps, breaks=breaks, says=says)


AUTHORS = [
    of_authors(
        "spec.planned is written by the gpuplan controller",
        lambda rig: merge(rig.alice, OWN_PLAN, {"spec": {"gpus": [WHOLE]}}),
        lambda rig: merge(rig.alice, OWN_PLAN, {"spec": {"planned": {"gpus": [WHOLE]}}}),
    ),
    of_authors(
        "who writes the plan of a node needs the right to patch that node",
        lambda rig: merge(rig.alice, OWN_PLAN, {"spec": {"paused": True}}),
        lambda rig: merge(rig.alice, OTHER_PLAN, {"spec": {"paused": True}}),
        f"who writes the plan of node {OTHER} needs the right to patch that node",
    ),
    of_authors(
        "not-the-controller",
        lambda rig: planned(rig, OWN, cut(2)),
        lambda rig: server_side(rig.admin, OWN_PLAN, plan(OWN, planned={"gpus": [cut(2)]}), names.CONTROLLER_MANAGER),
        "spec.planned is written by the gpuplan controller",
    ),
    of_authors(
        "spec-or-lifetime-changes",
        lambda rig: merge(rig.alice, OTHER_PLAN, {"metadata": {"labels": {"team": "a"}}}),
        lambda rig: merge(rig.alice, OTHER_PLAN, {"metadata": {"ownerReferences": [OWNER]}}),
        "needs the right to patch that node",
    ),
]
