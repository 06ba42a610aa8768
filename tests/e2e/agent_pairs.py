"""The pairs of the policies about the node agent; see policy_pairs."""

from crds.v1alpha1 import names
from tests.builders.objects import lease
from tests.e2e.fleet import KEPT_TAINT
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
from tests.e2e.policy_rig import CHANGING, OTHER, OWN, json_patch, merge, post
from tests.e2e.real_cluster import AGENT, LEASES


def of_agent(rule: str, keeps: Try, breaks: Try, says: str = "") -> Pair:
    return Pair(policy="gpuplan-agent", rule=rule, keeps=keeps, breaks=breaks, says=says)


def of_agent_node(rule: str, keeps: Try, breaks: Try) -> Pair:
    return Pair(policy="gpuplan-agent-node", rule=rule, keeps=keeps, breaks=breaks)


AGENTS = [
    of_agent(
        "the token is not bound to a pod",
        lambda rig: post(rig.agent, LEASES, own_lease()),
        lambda rig: post(rig.unbound, LEASES, own_lease()),
    ),
    of_agent(
        "only the status of its plan, its Node, its Lease",
        lambda rig: post(rig.agent, LEASES, own_lease()),
        lambda rig: post(rig.agent, SECRETS, {"metadata": {"name": "rules"}}),
        "may not create secrets, only the status of its plan",
    ),
    of_agent(
        "what belongs to another node",
        lambda rig: merge(rig.agent, f"{OWN_PLAN}/status", {"status": {"observedGeneration": 2}}),
        lambda rig: merge(rig.agent, f"{OTHER_PLAN}/status", {"status": {"observedGeneration": 2}}),
        f"agent of node {OWN} may not write gpupartitionplans/status {OTHER}",
    ),
    of_agent(
        "may write the Lease of its own node only",
        lambda rig: post(rig.agent, LEASES, own_lease()),
        lambda rig: post(rig.agent, LEASES, lease(names.CONTROLLER_LEASE)),
        f"may not write lease gpuplan-controller, only gpuplan-agent.{OWN} in {names.NAMESPACE}",
    ),
    of_agent(
        "an Event must say who wrote it",
        lambda rig: post(rig.agent, EVENTS, event(AGENT)),
        lambda rig: post(rig.agent, EVENTS, event("kubelet")),
    ),
    of_agent(
        "its Events are about pods, its own Node and the plan",
        lambda rig: post(rig.agent, EVENTS, event(AGENT, "Pod", "any")),
        lambda rig: post(rig.agent, EVENTS, event(AGENT, about=OTHER)),
    ),
    of_agent(
        "neither owners nor finalizers",
        lambda rig: post(rig.agent, LEASES, own_lease()),
        lambda rig: post(rig.agent, LEASES, own_lease(finalizers=["example.dev/stay"])),
    ),
    of_agent(
        "is-agent",
        lambda rig: post(rig.admin, SECRETS, {"metadata": {"name": "rules"}}),
        lambda rig: post(rig.agent, SECRETS, {"metadata": {"name": "rules"}}),
        "may not create secrets",
    ),
]
LABEL = "gpuplan.dev/mps-daemons"
AGENTS_NODE = [
    of_agent_node(
        "the only node label",
        lambda rig: merge(rig.agent, OWN_NODE, {"metadata": {"labels": {LABEL: "mig-b"}}}),
        lambda rig: merge(rig.agent, OWN_NODE, {"metadata": {"labels": {"zone": "q"}}}),
    ),
    of_agent_node(
        "annotations, finalizers and owners of a node",
        lambda rig: merge(rig.agent, OWN_NODE, {"metadata": {"labels": {LABEL: "mig-b"}}}),
        lambda rig: merge(rig.agent, OWN_NODE, {"metadata": {"ownerReferences": [OWNER]}}),
    ),
    of_agent_node(
        "the only taint that it may change",
        lambda rig: json_patch(rig.agent, OWN_NODE, {**ADD_TAINT, "value": CHANGING}),
        lambda rig: json_patch(rig.agent, OWN_NODE, {**ADD_TAINT, "value": {**CHANGING, "key": "x"}}),
    ),
    of_agent_node(
        "has the effect NoSchedule only",
        lambda rig: json_patch(rig.agent, OWN_NODE, {**ADD_TAINT, "value": CHANGING}),
        lambda rig: json_patch(rig.agent, OWN_NODE, {**ADD_TAINT, "value": {**CHANGING, "effect": "NoExecute"}}),
    ),
    of_agent_node(
        "the spec of a node is not its own",
        lambda rig: merge(rig.agent, OWN_NODE, {"spec": {"taints": [KEPT_TAINT, CHANGING]}}),
        lambda rig: merge(rig.agent, OWN_NODE, {"spec": {"unschedulable": True}}),
    ),
    of_agent_node(
        "capacity and allocatable only",
        lambda rig: merge(rig.agent, f"{OWN_NODE}/status", {"status": {"capacity": {"nvidia.com/gpu-10gb": "1"}}}),
        lambda rig: merge(rig.agent, f"{OWN_NODE}/status", {"status": {"phase": "Terminated"}}),
    ),
    of_agent_node(
        "those of GPU resources",
        lambda rig: merge(rig.agent, f"{OWN_NODE}/status", {"status": {"allocatable": {"nvidia.com/gpu": "1"}}}),
        lambda rig: merge(rig.agent, f"{OWN_NODE}/status", {"status": {"allocatable": {"nvidia.com/nic": "1"}}}),
    ),
    of_agent_node(
        "is-agent",
        lambda rig: merge(rig.admin, OWN_NODE, {"metadata": {"labels": {"zone": "q"}}}),
        lambda rig: merge(rig.agent, OWN_NODE, {"metadata": {"labels": {"zone": "q"}}}),
    ),
]
