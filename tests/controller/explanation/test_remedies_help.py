"""For each reason of the closed set: what the message tells its reader to do makes the pod run.

Each scenario is planned, its message is read, what it says is done to the cluster, and that is planned again.
"""

import pytest

from controller.model.reasons import UnplacedReason
from controller.planner.inventory.stock import Ineligible
from controller.planning import plan
from tests.controller.explanation.scenarios import ALL
from tests.controller.explanation.scenarios.scenario import Scenario

UNREACHED = {
    Ineligible.NO_MIG: "a pod that requests what no model has reads which models there are",
    Ineligible.NO_MPS: "so does one that requests a slice",
    Ineligible.PLAN_FAILED: "nothing in a cluster leads to it: planning the node raised an error",
}


@pytest.mark.parametrize("one", ALL, ids=[f"{one.reason}: {one.what}" for one in ALL])
def test_the_remedy_of_the_message_makes_the_pod_run(one: Scenario) -> None:
    found = one.why()
    assert found.reason is one.reason, found.full
    assert one.remedy in found.message, found.full
    after = plan(one.after, one.after_options or one.options)
    assert "a" in [placed.key[1] for placed in after.placed], [missed.full for missed in after.unplaced]


def test_every_reason_has_a_scenario() -> None:
    assert {one.reason for one in ALL} == set(UnplacedReason)


def test_every_cause_has_a_scenario() -> None:
    assert {one.cause for one in ALL} - {None} == set(Ineligible) - set(UNREACHED)
