"""Agent and controller on one API server after a silence: who writes Ready, and when."""

import pytest

from crds.v1alpha1 import paths
from kube import apply
from tests.builders.objects import node
from tests.drawn import cells
from tests.nodeagent.report.agent_and_controller import PlanRig

STEP_SECONDS = 0.5


@pytest.mark.parametrize(
    ("beat_after", "lag", "agent_first"),
    cells([0, 1, 8], [0, 1, 3], [True, False]),
    ids=lambda one: "agent first" if one is True else "controller first" if one is False else None,
)
def test_ready_changes_once_when_a_silent_agent_returns(
    rig: PlanRig, beat_after: int, lag: int, agent_first: bool
) -> None:
    """The heartbeat comes so many passes after it was wanted, and the controller reads Leases so many turns late."""
    rig.silent()
    sent_at = None
    for turn in range(24):
        if agent_first:
            rig.agent_turn()
        if rig.beats.requested and turn >= beat_after:
            rig.beats.send()
            sent_at = turn if sent_at is None else sent_at
        rig.controller_turn(leases=sent_at is None or turn >= sent_at + lag)
        if not agent_first:
            rig.agent_turn()
        rig.bench.clock.now += STEP_SECONDS

    assert rig.ready == ["Unknown", "True"]
    assert rig.reported("AgentAlive") == ("True", "Heartbeat")


def test_what_the_agent_has_not_read_yet_is_not_overwritten(rig: PlanRig) -> None:
    """Its watch brings Ready=Unknown only after its first pass, which has another status to write."""
    rig.silent()
    rig.agent_turn(watch=False)
    assert rig.reported("Ready") == ("Unknown", "AgentSilent")


def test_without_a_controller_the_agent_writes_ready_some_seconds_after_its_heartbeat(rig: PlanRig) -> None:
    rig.silent()
    rig.agent_turn()
    rig.beats.send()
    rig.agent_turn()
    assert rig.reported("Ready") == ("Unknown", "AgentSilent")
    rig.bench.clock.now += 5
    rig.agent_turn()
    assert rig.reported("Ready") == ("True", "Confirmed")


def test_all_but_ready_is_written_while_the_heartbeat_is_refused(rig: PlanRig) -> None:
    rig.silent()
    body = {"status": {"gpus": [{"index": 0, "state": "Failed"}], "observedGeneration": 0}}
    apply.merge_patch(rig.cluster.api, f"{paths.plan('n1')}/status", body)
    for _ in range(30):
        rig.agent_turn()
        rig.controller_turn()
        rig.bench.clock.now += STEP_SECONDS

    found = rig.cluster.get_plan()["status"]
    assert found["observedGeneration"] == 1
    assert "gpus" not in found or found["gpus"] == []
    ready = rig.cluster.conditions()["Ready"]
    assert (ready["status"], ready["reason"]) == ("Unknown", "AgentSilent")
    assert set(ready) == {"type", "status", "reason", "message", "observedGeneration", "lastTransitionTime"}


def test_a_deleted_node_turns_ready_at_once_and_only_once(rig: PlanRig) -> None:
    rig.confirmed()
    apply.delete(rig.cluster.api, paths.node("n1"))
    rig.bench.state.observe_node("n1", None)
    rig.ready.clear()
    rig.controller_turn()
    assert rig.reported("Ready") == ("Unknown", "NodeNotFound")
    for _ in range(60):
        rig.agent_turn()
        if rig.beats.requested:
            rig.beats.send()
        rig.controller_turn()
        rig.bench.clock.now += STEP_SECONDS
    assert rig.ready == ["Unknown"]
    rig.cluster.node(node("n1"))
    for _ in range(4):
        rig.beats.send()
        rig.controller_turn()
        rig.agent_turn()
    assert rig.ready == ["Unknown", "True"]


def test_a_new_agent_does_not_wait_for_its_heartbeat(rig: PlanRig) -> None:
    rig.controller_turn()
    assert rig.reported("Ready") == ("Unknown", "AwaitingAgent")
    rig.agent_turn()
    assert rig.reported("Ready") == ("True", "Confirmed")
    rig.beats.send()
    for _ in range(4):
        rig.controller_turn()
        rig.agent_turn()
    assert rig.ready == ["Unknown", "True"]
