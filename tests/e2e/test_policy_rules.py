"""Every CEL expression that decides in deploy/ has a request that keeps it and one that it refuses.

The rules come from the manifests: one that is added without a pair fails here, and so does a pair whose rule has gone.
"""

from collections.abc import Iterator

import pytest

from tests.e2e.agent_pairs import AGENTS, AGENTS_NODE
from tests.e2e.controller_pairs import AUTHORS, CONTROLLERS, STATUS
from tests.e2e.pod_pairs import PODS
from tests.e2e.policy_pairs import Pair
from tests.e2e.policy_rig import PolicyRig, policy_rig
from tests.e2e.real_cluster import MANIFESTS, RealCluster
from tests.e2e.rig.controlplane.tenants import manifests_of

PAIRS = [*AGENTS, *AGENTS_NODE, *CONTROLLERS, *AUTHORS, *STATUS, *PODS]
POLICIES = [body for body in manifests_of(MANIFESTS) if body["kind"] == "ValidatingAdmissionPolicy"]
RULES = [
    (body["metadata"]["name"], rule)
    for body in POLICIES
    for rule in [
        *(each["name"] for each in body["spec"].get("matchConditions", ())),
        *(" ".join(each["message"].split()) for each in body["spec"]["validations"]),
    ]
]
CONDITIONS = {each["name"] for body in POLICIES for each in body["spec"].get("matchConditions", ())}


@pytest.fixture(scope="module")
def rig(cluster: RealCluster) -> Iterator[PolicyRig]:
    with policy_rig(cluster) as found:
        yield found


def pairs_of(policy: str, rule: str) -> list[Pair]:
    return [pair for pair in PAIRS if pair.policy == policy and pair.rule in rule]


@pytest.mark.parametrize(("policy", "rule"), RULES, ids=lambda text: text[:60])
def test_every_rule_lets_one_pass_and_refuses_the_other(rig: PolicyRig, policy: str, rule: str) -> None:
    (pair,) = pairs_of(policy, rule)
    kept = pair.keeps(rig)
    assert kept.allowed, kept.message
    broken = pair.breaks(rig)
    assert broken.status == 403, broken
    assert f"ValidatingAdmissionPolicy '{policy}'" in broken.message
    assert pair.says or pair.rule in CONDITIONS or pair.rule in broken.message
    assert pair.says in broken.message


def test_every_pair_has_one_rule() -> None:
    for pair in PAIRS:
        assert len([1 for policy, rule in RULES if pair in pairs_of(policy, rule)]) == 1, pair
