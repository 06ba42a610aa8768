"""Each rule of the admission policies with one request that keeps it and one that it refuses.

A pair names its rule by the policy and by part of the rule's message, or by the name of a match condition, whose pair
shows a request that the policy leaves alone and one that it does not. What differs between the two requests is what the
rule is about, and nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from crds.v1alpha1 import names
from tests.builders.objects import lease
from tests.e2e.policy_rig import OTHER, OWN, PolicyRig
from tests.e2e.real_cluster import NODES, PLANS, Answer

Try = Callable[[PolicyRig], Answer]
EVENTS = "/api/v1/namespaces/default/events"
SECRETS = f"/api/v1/namespaces/{names.NAMESPACE}/secrets"
OWN_PLAN, OTHER_PLAN, OWN_NODE = f"{PLANS}/{OWN}", f"{PLANS}/{OTHER}", f"{NODES}/{OWN}"
ADD_TAINT = {"op": "add", "path": "/spec/taints/-"}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "nowhere", "uid": "00000000-0000-0000-0000-000000000000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One rule's two requests."""

    policy: str
    rule: str
    """Words of its message, or the name of a match condition."""
    keeps: Try
    breaks: Try
    says: str = ""
    """Where the message is an expression: words of what it comes to."""


def event(component: str, kind: str = names.KIND, about: str = OWN, instance: str = OWN) -> dict[str, Any]:
    texts = {"type": "Normal", "reason": "E2E", "message": "m", "reportingInstance": instance}
    involved = {"kind": kind, "name": about, **({"namespace": "default"} if kind == "Pod" else {})}
    source = {"source": {"component": component}, "reportingComponent": component}
    return {"metadata": {"name": "rules-event"}, "involvedObject": involved, **texts, **source}


def own_lease(**metadata: Any) -> dict[str, Any]:
    return lease(names.agent_lease(OWN), **metadata)
