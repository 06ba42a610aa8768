"""A status that the API server refuses is reported through the heartbeat; one that is away is no refusal."""

import contextlib
from typing import Any

from crds.v1alpha1 import names
from kube.errors import ApiError
from sandbox.apiserver import Refuse
from tests.nodeagent.report.agent_and_controller import Rig

STEP_SECONDS = 0.5


def refusal(rig: Rig) -> Any:
    """The API server refuses the agent's status, and takes everything else."""
    rig.confirmed()
    rig.cluster.pin("n1", {"index": 0, "whole": {}})
    fault = refuse_the_agents(rig)
    for turn in range(3):
        assert (rig.failures.count, rig.beats.requested) == (turn, False)
        rig.agent_turn()
    # A heartbeat that gets through tells a refused status from an API server that is away.
    assert (rig.failures.problem, rig.beats.requested) == ("", True)
    rig.beats.send()
    rig.agent_turn()
    return fault


def refuse_the_agents(rig: Rig) -> Any:
    def fault(request: Any) -> Refuse | None:
        theirs = request.path.endswith("/n1/status") and request.query.get("fieldManager") == names.AGENT_MANAGER
        return Refuse(code=422, reason="Invalid") if theirs else None

    rig.cluster.server.faults.append(fault)
    return fault


def test_a_status_that_is_refused_three_times_is_reported_by_the_controller(rig: Rig) -> None:
    fault = refusal(rig)
    assert rig.beats.requested
    rig.beats.send()
    rig.controller_turn()
    assert rig.reported("AgentAlive") == ("False", "CannotReport")
    assert "injected fault" in rig.cluster.conditions()["AgentAlive"]["message"]
    assert rig.reported("Ready") == ("Unknown", "CannotReport")
    assert not rig.bench.state.plan_views()["n1"].agent_alive
    rig.ready.clear()
    for _ in range(20):
        rig.agent_turn()
        rig.beats.send()
        rig.controller_turn()
        rig.bench.clock.now += STEP_SECONDS
    assert rig.ready == ["Unknown"]

    rig.cluster.server.faults.remove(fault)
    for turn in range(20):
        rig.agent_turn()
        if rig.beats.requested:
            rig.beats.send()
        rig.controller_turn(leases=turn > 3)
        rig.bench.clock.now += STEP_SECONDS
    assert rig.ready == ["Unknown", "True"]
    assert rig.reported("AgentAlive") == ("True", "Heartbeat")
    assert rig.failures.count == 0


def test_two_failures_do_not_show_on_the_plan(rig: Rig) -> None:
    rig.confirmed()
    rig.cluster.pin("n1", {"index": 0, "whole": {}})
    fault = refuse_the_agents(rig)
    rig.agent_turn()
    rig.agent_turn()
    assert (rig.failures.count, rig.failures.problem) == (2, "")
    rig.cluster.server.faults.remove(fault)
    rig.agent_turn()
    assert rig.failures.count == 0


def test_an_api_server_that_was_away_is_no_refusal(rig: Rig) -> None:
    rig.confirmed()
    rig.cluster.pin("n1", {"index": 0, "whole": {}})

    def away(request: Any) -> Refuse | None:
        theirs = "/leases/" in request.path or request.query.get("fieldManager") == names.AGENT_MANAGER
        return Refuse(code=503, reason="ServiceUnavailable") if theirs else None

    rig.cluster.server.faults.append(away)
    for _ in range(5):
        rig.agent_turn()
        with contextlib.suppress(ApiError):
            rig.beats.send()
    rig.cluster.server.faults.remove(away)
    rig.ready.clear()

    rig.beats.send()
    rig.controller_turn()
    rig.agent_turn()
    rig.controller_turn()

    assert rig.reported("AgentAlive") == ("True", "Heartbeat")
    assert "Unknown" not in rig.ready
    assert rig.failures.count == 0
