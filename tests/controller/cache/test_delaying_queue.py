"""Judging only what changed or is due comes to the same as judging everything in every turn."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from controller.actions.agent_liveness import AgentLiveness
from controller.actions.environment import Environment
from controller.actions.metrics import Metrics
from controller.actions.plan_lifecycle import PlanLifecycle
from controller.actions.plan_writer import Writer
from controller.api.plans import read_plan
from controller.cache.delaying_queue import DelayingQueue
from tests.builders.objects import condition, gpu, item, node, plan, status
from tests.clock import Clock
from tests.controller.cache.state_bench import StateBench
from tests.drawn import examples

NAMES = ("n1",)  # each is judged by itself


@pytest.fixture
def clock() -> Clock:
    return Clock()


def agenda(clock: Clock, *every: str, resync_seconds: float = 60.0) -> DelayingQueue:
    return DelayingQueue(clock=clock, every=lambda: every, resync_seconds=resync_seconds)


def test_what_is_touched_is_due_once(clock: Clock) -> None:
    work = agenda(clock)
    for name in ("b", "a", "b"):
        work.touch(name)
    assert work.take() == ["a", "b"]
    assert work.take() == []


def test_a_deadline_is_due_at_its_moment_and_once(clock: Clock) -> None:
    work = agenda(clock)
    work.at("a", clock.now + 9)
    work.at("a", clock.now + 5)
    work.at("b", clock.now + 7)
    clock.now += 4.9
    assert work.take() == []
    clock.now += 0.1
    assert work.take() == ["a"]
    clock.now += 10
    assert work.take() == ["b"]


def test_a_touch_replaces_the_deadline(clock: Clock) -> None:
    work = agenda(clock)
    work.at("a", clock.now + 5)
    work.touch("a")
    assert work.take() == ["a"]
    clock.now += 5
    assert work.take() == []


def test_everything_is_due_first_and_once_a_minute(clock: Clock) -> None:
    work = agenda(clock, "a", "b")
    assert work.take() == ["a", "b"]
    clock.now += 59
    assert work.take() == []
    clock.now += 1
    assert work.take() == ["a", "b"]


def with_conditions(alive: str, alive_reason: str, ready: str, ready_reason: str) -> dict[str, Any]:
    conditions = [condition("AgentAlive", alive, alive_reason), condition("Ready", ready, ready_reason)]
    return {"status": status(gpu(), conditions=conditions)}


PLANS: dict[str, dict[str, Any]] = {
    "empty": {},
    "stale item": {"spec": {"gpus": [{"index": 0, "whole": {}}]}, "planned": [item(0, 3)]},
    "authored": {"spec": {"mode": "Manual"}},
    "starting": with_conditions("Unknown", "Starting", "Unknown", "AwaitingAgent"),
    "alive": with_conditions("True", "Heartbeat", "True", "Confirmed"),
    "silent": with_conditions("False", "AgentSilent", "Unknown", "AgentSilent"),
    "no node": with_conditions("Unknown", "NodeNotFound", "Unknown", "NodeNotFound"),
}
SECONDS = (0.5, 5.0, 59.5, 60.0, 61.0, 180.0, 3600.0)


class Judges:
    """AgentLiveness and PlanLifecycle on one state, whose requests the test plays."""

    def __init__(self) -> None:
        self.bench = StateBench()
        self.thrifty, self.thorough = self._made(), self._made()
        for judge in self.thrifty:
            judge._queue._delaying._resync_at = float("inf")  # the net would hide what is missing
        self.version = 10

    def _made(self) -> tuple[Any, ...]:
        api: Any = None
        environment = Environment(
            api=api,
            state=self.bench.state,
            metrics=Metrics(CollectorRegistry()),
            leading=lambda: True,
            clock=self.bench.clock,
        )
        agents = AgentLiveness(environment, agent_silent_seconds=60, taint_removal_seconds=180)
        lifecycle = PlanLifecycle(
            environment, Writer(environment), namespace="n", plan_return_seconds=60, orphan_plan_seconds=3600
        )
        return agents, lifecycle

    def plan(self, name: str, kind: str) -> None:
        self.version += 1
        raw = plan(name, version=self.version, **PLANS[kind])
        self.bench.state.observe_plan(name, read_plan(raw))

    def check(self) -> None:
        """Nothing is sent, so that what is due stays due."""
        for thrifty, thorough in zip(self.thrifty, self.thorough, strict=True):
            due = [(one.what, one.about) for one in thrifty._queue.due(thrifty.due_of)]
            judged = [one for name in sorted(self.bench.state.cluster.names()) for one in thorough.due_of(name)]
            assert due == [(one.what, one.about) for one in judged]
            for _, name in due:
                thrifty._queue._delaying.touch(name)


def _node(name: str, kind: str) -> Callable[[Judges], None]:
    raw = node(name, mode=None if kind == "disabled" else "mig")
    if kind == "tainted":
        raw["spec"] = {"taints": [{"key": "gpuplan.dev/changing", "effect": "NoSchedule"}]}
    return lambda judges: judges.bench.node(raw)


names = st.sampled_from(NAMES)
steps = st.one_of(
    st.builds(_node, names, st.sampled_from(["enabled", "disabled", "tainted"])),
    st.builds(lambda name: lambda j: j.bench.state.observe_node(name, None), names),
    st.builds(lambda name, kind: lambda j: j.plan(name, kind), names, st.sampled_from(sorted(PLANS))),
    st.builds(lambda name: lambda j: j.bench.state.observe_plan(name, None), names),
    st.builds(lambda name: lambda j: j.bench.beat(name), names),
    st.builds(lambda name: lambda j: j.bench.state.observe_heartbeat(name, "problem", "no"), names),
    st.builds(
        lambda name, at: lambda j: j.bench.state.observe_lease(name, at), names, st.sampled_from(["1", "2", None])
    ),
)


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(st.lists(st.tuples(st.lists(steps, max_size=4), st.sampled_from(SECONDS)), max_size=8))
def test_judging_what_is_due_is_as_good_as_judging_everything(turns: list[tuple[list[Any], float]]) -> None:
    judges = Judges()
    for observed, seconds in turns:
        for step in observed:
            step(judges)
        judges.bench.clock.now += seconds
        judges.bench.state.tick()
        judges.check()


def due_of_agents(judges: Judges, *, after: float = 0.0) -> list[str]:
    judges.bench.clock.now += after
    judges.bench.state.tick()
    agents = judges.thrifty[0]
    return [one.what for one in agents._queue.due(agents.due_of)]


def test_the_deadlines_of_an_agent_from_its_last_beat_to_its_taint() -> None:
    judges = Judges()
    _node("n1", "tainted")(judges)
    judges.plan("n1", "alive")
    for beat in ("first", "second"):
        judges.bench.state.observe_heartbeat("n1", beat)
    assert due_of_agents(judges) == []
    assert due_of_agents(judges, after=59) == []
    assert due_of_agents(judges, after=1) == ["AgentAlive of plan n1"]
    judges.plan("n1", "silent")
    assert due_of_agents(judges) == []
    assert due_of_agents(judges, after=119) == []
    assert due_of_agents(judges, after=1) == ["removal of a taint of node n1"]


def test_an_agent_that_never_reports_is_judged_again_when_it_counts_as_silent() -> None:
    judges = Judges()
    _node("n1", "enabled")(judges)
    judges.plan("n1", "starting")
    assert due_of_agents(judges) == []
    assert due_of_agents(judges, after=60) == ["AgentAlive of plan n1"]
