"""A status that the API server refuses is reported through the heartbeat; one that is away is no refusal."""

import contextlib
from itertools import pairwise
from typing import Any

import pytest

from crds.v1alpha1 import names
from kube import clients
from kube.budget import RequestBudget
from kube.errors import ApiError
from kube.latest import LatestVersion
from nodeagent.advertise.node_writer import NodeWriter
from nodeagent.desired.plan import ObservedPlan
from nodeagent.observed.node import ObservedNode
from nodeagent.report.publish import StatusFailures, StatusWriter
from tests.apiserver import Refuse
from tests.clock import Clock
from tests.kube.fake_api import FakeApi, Reply, Request
from tests.nodeagent.report.agent_and_controller import PlanRig, Silent

STEP_SECONDS = 2.0
PAUSE_SECONDS = 10.0
"""Longer than any pause after a failure."""


def refusal(rig: PlanRig) -> Any:
    """The API server refuses the agent's status, and takes everything else."""
    rig.confirmed()
    rig.cluster.pin("n1", {"index": 0, "whole": {}})
    fault = refuse_the_agents(rig)
    for turn in range(3):
        assert (rig.failures.count, rig.beats.requested) == (turn, False)
        rig.agent_turn()
        rig.bench.clock.now += PAUSE_SECONDS
    # A heartbeat that gets through tells a refused status from an API server that is away.
    assert (rig.failures.problem, rig.beats.requested) == ("", True)
    rig.beats.send()
    rig.agent_turn()
    return fault


def refuse_the_agents(rig: PlanRig, code: int = 422, reason: str = "Invalid") -> Any:
    def fault(request: Any) -> Refuse | None:
        theirs = request.path.endswith("/n1/status") and request.query.get("fieldManager") == names.AGENT_MANAGER
        return Refuse(code=code, reason=reason) if theirs else None

    rig.cluster.server.faults.append(fault)
    return fault


def test_a_status_that_is_refused_three_times_is_reported_by_the_controller(rig: PlanRig) -> None:
    fault = refusal(rig)
    assert rig.beats.requested
    rig.beats.send()
    rig.controller_turn()
    assert rig.reported("AgentAlive") == ("False", "CannotReport")
    assert "injected fault" in rig.cluster.conditions()["AgentAlive"]["message"]
    assert rig.reported("Ready") == ("Unknown", "CannotReport")
    assert not rig.bench.state.cluster.plan_views()["n1"].agent_alive
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


def test_two_failures_do_not_show_on_the_plan(rig: PlanRig) -> None:
    rig.confirmed()
    rig.cluster.pin("n1", {"index": 0, "whole": {}})
    fault = refuse_the_agents(rig)
    for _ in range(2):
        rig.agent_turn()
        rig.bench.clock.now += PAUSE_SECONDS
    assert (rig.failures.count, rig.failures.problem) == (2, "")
    rig.cluster.server.faults.remove(fault)
    rig.agent_turn()
    assert rig.failures.count == 0


def test_a_status_that_meets_a_changed_plan_each_time_is_reported_in_the_end(
    rig: PlanRig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.confirmed()
    rig.cluster.pin("n1", {"index": 0, "whole": {}})
    fault = refuse_the_agents(rig, 409, "Conflict")
    for turn in range(9):
        rig.agent_turn()
        assert (rig.failures.count, rig.failures.problem) == (turn + 1, "")
        rig.bench.clock.now += STEP_SECONDS
    assert not [record for record in caplog.records if "status was not written" in record.message]
    rig.beats.send()
    rig.agent_turn()
    assert "injected fault" in rig.failures.problem
    rig.beats.send()
    rig.controller_turn()
    assert rig.reported("AgentAlive") == ("False", "CannotReport")
    assert [record for record in caplog.records if "status was not written" in record.message]
    rig.cluster.server.faults.remove(fault)
    rig.bench.clock.now += PAUSE_SECONDS
    rig.agent_turn()
    assert (rig.failures.count, rig.failures.problem) == (0, "")


def test_of_a_plan_that_has_gone_no_failure_is_counted_any_more(rig: PlanRig) -> None:
    """The watch may show it for some time; the gauge would keep an alert about a node without a plan."""
    rig.confirmed()
    rig.cluster.pin("n1", {"index": 0, "whole": {}})
    conflict = refuse_the_agents(rig, 409, "Conflict")
    rig.agent_turn()
    assert rig.failures.count == 1
    rig.cluster.server.faults.remove(conflict)
    refuse_the_agents(rig, 404, "NotFound")
    rig.agent_turn()
    assert rig.failures.count == 0


def test_an_api_server_that_was_away_is_no_refusal(rig: PlanRig) -> None:
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
        rig.bench.clock.now += PAUSE_SECONDS
    rig.cluster.server.faults.remove(away)
    rig.ready.clear()

    rig.beats.send()
    rig.controller_turn()
    rig.agent_turn()
    rig.controller_turn()

    assert rig.reported("AgentAlive") == ("True", "Heartbeat")
    assert "Unknown" not in rig.ready
    assert rig.failures.count == 0


def test_after_a_failure_the_status_waits_and_is_tried_less_and_less_often(rig: PlanRig) -> None:
    rig.confirmed()
    rig.cluster.pin("n1", {"index": 0, "whole": {}})
    refuse_the_agents(rig)
    tried_at: list[float] = []
    began = rig.bench.clock.now
    for _ in range(40):
        before = rig.failures.count
        rig.agent_turn()
        if rig.failures.count > before:
            tried_at.append(rig.bench.clock.now - began)
        rig.bench.clock.now += 1.0

    assert len(tried_at) < 12
    assert all(1.0 <= later - earlier <= PAUSE_SECONDS for earlier, later in pairwise(tried_at))
    assert tried_at[-1] - tried_at[-2] > tried_at[1] - tried_at[0]


@pytest.mark.parametrize(("code", "unsure"), [(503, True), (403, False)])
def test_write_that_may_have_been_carried_out_is_followed_by_one_that_is_known(code: int, unsure: bool) -> None:
    """Also where its successor is what the API is known to have: by now it may have the other one."""
    clock, latest = Clock(), LatestVersion[ObservedPlan]()
    plan = ObservedPlan(uid="u", generation=1, version="1", content=None, status={"summary": {"ready": 1}})
    latest.accept(plan)
    server = FakeApi(lambda _: Reply({"message": "no"}, status=code))
    try:
        status = StatusWriter(
            clients.for_url(server.url),
            "n1",
            latest,
            RequestBudget(),
            beats=Silent(),
            failures=StatusFailures(),
            clock=clock,
            interval_seconds=1.0,
        )
        with pytest.raises(ApiError):
            status.write(plan, {"summary": {"ready": 2}})
        known = latest.get()
        assert known is not None
        assert known.unanswered == unsure
        clock.now += 60.0
        with pytest.raises(ApiError) if unsure else contextlib.nullcontext():
            status.write(known, plan.status)
        assert len(server.requests) == 1 + unsure
    finally:
        server.stop()


@pytest.mark.parametrize("what", ["status", "taint", "counts"])
def test_every_write_heeds_what_the_api_server_requests(what: str) -> None:
    """A server that is overloaded names the time after which it may be called again."""
    clock = Clock()

    def answer(request: Request) -> Reply:
        return Reply({"message": "slow down"}, status=429, headers={"Retry-After": "30"})

    server = FakeApi(answer)
    try:
        api, budget = clients.for_url(server.url), RequestBudget()
        node = NodeWriter(api, "n1", LatestVersion[ObservedNode](), budget, clock=clock)
        status = StatusWriter(
            api,
            "n1",
            LatestVersion[ObservedPlan](),
            budget,
            beats=Silent(),
            failures=StatusFailures(),
            clock=clock,
            interval_seconds=1.0,
        )

        def write() -> object:
            if what == "status":
                with contextlib.suppress(ApiError):
                    return status.write(ObservedPlan(uid="u", generation=1, version="1", content=None), {"summary": {}})
                return None
            return node.set_taint(True) if what == "taint" else node.set_counts("1", {"a": 1}, {"a": 1})

        first = write()
        clock.now += 29.0
        assert write() == (1.0 if what == "status" else first)
        assert len(server.requests) == 1

        clock.now += 1.0
        write()
        assert len(server.requests) == 2
    finally:
        server.stop()
