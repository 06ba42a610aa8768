"""Agent and controller on one API server after a silence, or while the status is refused: who writes Ready, and when.

The controller's `Agents` and the agent's `StatusWriter` and `Heartbeat` are the product's; the test plays threads and
watches, so that every order of events can be had, and moves the clock.
"""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from controller.actions.agent_liveness import AgentLiveness
from controller.api import paths
from controller.api.plans import read_plan
from crds.v1alpha1 import names
from kube import apply
from kube.budget import RequestBudget
from kube.errors import ApiError
from kube.latest import LatestVersion
from kube.leases import Heartbeat
from nodeagent.desired.plan import ObservedPlan, parse_plan
from nodeagent.report.publish import StatusFailures, StatusWriter
from sandbox.apiserver import Refuse
from tests.builders.objects import condition, node, status
from tests.controller.cluster import Bench, Cluster

STEP_SECONDS = 0.5


@pytest.fixture
def rig() -> Iterator["Rig"]:
    cluster = Cluster()
    yield Rig(Bench(cluster))
    cluster.server.stop()


class Beats:
    """The heartbeat without its thread: what is requested goes out when the test decides."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        self.heartbeat, self.wanted = heartbeat, False

    @property
    def taken(self) -> int:
        return self.heartbeat.taken

    @taken.setter
    def taken(self, value: int) -> None:
        raise AssertionError(value)

    def beat_now(self) -> None:
        self.wanted = True

    def send(self) -> None:
        self.wanted = False
        self.heartbeat.beat()


class Rig:
    """One plan, its agent and the controller."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.cluster = bench, bench.cluster
        self.cluster.node(node("n1"))
        self.cluster.plan("n1")
        self.controller = AgentLiveness(
            self.cluster.api,
            bench.state,
            bench.metrics,
            leading=bench.leading,
            clock=bench.clock,
            now=lambda: datetime(2026, 1, 1, 12, tzinfo=UTC),
            agent_silent_seconds=60,
            taint_removal_seconds=180,
        )
        self.latest, self.failures = LatestVersion[ObservedPlan](), StatusFailures()
        self.beats = Beats(
            Heartbeat(
                self.cluster.api,
                namespace=names.NAMESPACE,
                name=names.agent_lease("n1"),
                identity="n1",
                manager=names.AGENT_MANAGER,
                annotations=self.failures.annotations,
            )
        )
        self.writer = StatusWriter(
            self.cluster.api,
            "n1",
            self.latest,
            RequestBudget(),
            beats=self.beats,
            failures=self.failures,
            clock=bench.clock,
            interval_seconds=0.0,
        )
        self.ready: list[str] = []
        """Every status of Ready that anybody who watches has seen, without repetitions."""

    def controller_turn(self, *, leases: bool = True) -> None:
        """Its watches and its chores; without `leases` the watch of the Leases lags behind that of the plans."""
        if leases:
            self.bench.load()
        self.bench.state.observe_plan("n1", read_plan(self.cluster.get_plan()))
        self.bench.state.tick()
        self.controller.run()
        self.look()

    def agent_turn(self, *, watch: bool = True) -> None:
        """A pass; without `watch` on what the agent knew before."""
        raw = self.cluster.get_plan()
        if watch:
            self.latest.on_event(None, None, parse_plan(raw))
        plan = self.latest.get()
        assert plan is not None
        seen = plan.generation
        own = [condition(kind, "True", "Confirmed", seen) for kind in sorted(names.Condition) if kind != "AgentAlive"]
        with contextlib.suppress(ApiError):
            self.writer.write(plan, {**status(observed=seen), "conditions": own})
        self.look()

    def look(self) -> None:
        found = self.cluster.conditions().get("Ready", {}).get("status", "")
        if not self.ready or self.ready[-1] != found:
            self.ready.append(found)

    def says(self, kind: str) -> tuple[str, str]:
        found = self.cluster.conditions()[kind]
        return found["status"], found["reason"]

    def confirmed(self) -> None:
        """The ordinary state: heard, Ready, and nothing to write."""
        self.beats.send()
        self.controller_turn()
        self.agent_turn()
        self.controller_turn()
        assert (self.says("Ready"), self.says("AgentAlive")) == (("True", "Confirmed"), ("True", "Heartbeat"))

    def silent(self) -> None:
        self.confirmed()
        self.bench.clock.now += 61
        self.controller_turn()
        assert self.says("Ready") == ("Unknown", "AgentSilent")
        self.ready.clear()
        self.look()


@pytest.mark.parametrize("beat_after", [0, 1, 8], ids=lambda n: f"heartbeat after {n} passes")
@pytest.mark.parametrize("lag", [0, 1, 3], ids=lambda n: f"Leases {n} turns late")
@pytest.mark.parametrize("agent_first", [True, False])
def test_ready_changes_once_when_a_silent_agent_returns(rig: Rig, beat_after: int, lag: int, agent_first: bool) -> None:
    rig.silent()
    sent_at = None
    for turn in range(24):
        if agent_first:
            rig.agent_turn()
        if rig.beats.wanted and turn >= beat_after:
            rig.beats.send()
            sent_at = turn if sent_at is None else sent_at
        rig.controller_turn(leases=sent_at is None or turn >= sent_at + lag)
        if not agent_first:
            rig.agent_turn()
        rig.bench.clock.now += STEP_SECONDS

    assert rig.ready == ["Unknown", "True"]
    assert rig.says("AgentAlive") == ("True", "Heartbeat")


def test_what_the_agent_has_not_read_yet_is_not_overwritten(rig: Rig) -> None:
    """Its watch brings Ready=Unknown only after its first pass, which has another status to write."""
    rig.silent()
    rig.agent_turn(watch=False)
    assert rig.says("Ready") == ("Unknown", "AgentSilent")


def test_without_a_controller_the_agent_writes_ready_some_seconds_after_its_heartbeat(rig: Rig) -> None:
    rig.silent()
    rig.agent_turn()
    rig.beats.send()
    rig.agent_turn()
    assert rig.says("Ready") == ("Unknown", "AgentSilent")
    rig.bench.clock.now += 5
    rig.agent_turn()
    assert rig.says("Ready") == ("True", "Confirmed")


def test_all_but_ready_is_written_while_the_heartbeat_is_refused(rig: Rig) -> None:
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


def refusal(rig: Rig) -> Any:
    """The API server refuses the agent's status, and takes everything else."""
    rig.confirmed()
    rig.cluster.pin("n1", {"index": 0, "whole": {}})
    fault = refuse_the_agents(rig)
    for turn in range(3):
        assert (rig.failures.count, rig.beats.wanted) == (turn, False)
        rig.agent_turn()
    # A heartbeat that gets through tells a refused status from an API server that is away.
    assert (rig.failures.problem, rig.beats.wanted) == ("", True)
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
    assert rig.beats.wanted
    rig.beats.send()
    rig.controller_turn()
    assert rig.says("AgentAlive") == ("False", "CannotReport")
    assert "injected fault" in rig.cluster.conditions()["AgentAlive"]["message"]
    assert rig.says("Ready") == ("Unknown", "CannotReport")
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
        if rig.beats.wanted:
            rig.beats.send()
        rig.controller_turn(leases=turn > 3)
        rig.bench.clock.now += STEP_SECONDS
    assert rig.ready == ["Unknown", "True"]
    assert rig.says("AgentAlive") == ("True", "Heartbeat")
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

    assert rig.says("AgentAlive") == ("True", "Heartbeat")
    assert "Unknown" not in rig.ready
    assert rig.failures.count == 0


def test_a_deleted_node_turns_ready_at_once_and_only_once(rig: Rig) -> None:
    rig.confirmed()
    apply.delete(rig.cluster.api, paths.node("n1"))
    rig.bench.state.observe_node("n1", None)
    rig.ready.clear()
    rig.controller_turn()
    assert rig.says("Ready") == ("Unknown", "NodeNotFound")
    for _ in range(60):
        rig.agent_turn()
        if rig.beats.wanted:
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


def test_a_new_agent_does_not_wait_for_its_heartbeat(rig: Rig) -> None:
    rig.controller_turn()
    assert rig.says("Ready") == ("Unknown", "AwaitingAgent")
    rig.agent_turn()
    assert rig.says("Ready") == ("True", "Confirmed")
    rig.beats.send()
    for _ in range(4):
        rig.controller_turn()
        rig.agent_turn()
    assert rig.ready == ["Unknown", "True"]
