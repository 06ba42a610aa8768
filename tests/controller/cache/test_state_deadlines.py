"""What time alone does to the state, on a clock that only the test moves."""

import pytest

from controller.cache.cluster import ClusterCache
from controller.cache.heartbeats import Heartbeats
from controller.cache.state import State
from controller.model.results import Drained
from controller.model.views import PlannerOptions
from tests.builders.objects import Json, condition, item, node, plan, pod
from tests.controller.cache.state_bench import READY, StateBench, settled


def test_deadlines_pass_by_themselves() -> None:
    bench = StateBench()
    settled(bench)
    bench.pod(pod("waiting"))
    bench.triggers()
    bench.clock.now += 59
    bench.state.tick()
    assert bench.state.cluster.plan_views()["n1"].agent_alive
    bench.clock.now += 1
    bench.state.tick()
    assert not bench.state.cluster.plan_views()["n1"].agent_alive
    assert not bench.state.cluster.plan_views()["n1"].gpus[0].settled
    assert bench.triggers() == ("node n1",)
    assert bench.state.cluster.agent_silent_for("n1") == 60
    bench.beat()
    assert bench.state.cluster.plan_views()["n1"].gpus[0].settled
    assert bench.triggers() == ("node n1",)


def test_an_agent_falls_not_silent_while_no_lease_could_be_watched() -> None:
    bench = StateBench()
    settled(bench)
    bench.clock.now += 50
    bench.state.tick()
    bench.clock.now += 300
    bench.state.excuse_agents(300)
    bench.state.tick()
    assert bench.state.cluster.plan_views()["n1"].agent_alive
    bench.clock.now += 10
    bench.state.tick()
    assert not bench.state.cluster.plan_views()["n1"].agent_alive
    assert bench.state.cluster.agent_silent_for("n1") == 60


def test_an_agent_that_was_judged_silent_meanwhile_is_alive_again() -> None:
    bench = StateBench()
    settled(bench)
    bench.clock.now += 70
    bench.state.tick()
    assert not bench.state.cluster.plan_views()["n1"].agent_alive
    bench.state.excuse_agents(30)
    assert bench.state.cluster.plan_views()["n1"].agent_alive


def test_an_outage_brings_no_silent_agent_back() -> None:
    bench = StateBench()
    settled(bench)
    bench.clock.now += 60
    bench.state.tick()
    bench.clock.now += 300
    bench.state.excuse_agents(300)
    assert not bench.state.cluster.plan_views()["n1"].agent_alive
    assert bench.state.cluster.agent_silent_for("n1") == 360


@pytest.mark.parametrize(
    ("labels", "silent"),
    [
        ({"gpuplan.dev/gpu-partitioning": "mig", "gpuplan.dev/node-agent": "true"}, {"n1": True}),
        ({"gpuplan.dev/gpu-partitioning": "mig"}, {"n1": True}),
        ({"gpuplan.dev/node-agent": "true"}, {"n1": True}),
        ({}, {}),
    ],
    ids=["enabled", "just enabled", "not handed back yet", "handed back"],
)
def test_an_agent_is_missed_where_it_belongs_only(labels: dict[str, str], silent: dict[str, bool]) -> None:
    bench = StateBench()
    settled(bench)
    bench.node(node(labels=labels))
    bench.clock.now += 60
    bench.state.tick()
    assert bench.state.cluster.silent_agents() == silent
    bench.state.observe_node("n1", None)
    assert bench.state.cluster.silent_agents() == {}


@pytest.mark.parametrize("reason", ["AgentSilent", "NodeDisabled"])
def test_a_lease_found_at_start_does_not_bring_back_an_agent_that_left(reason: str) -> None:
    bench = StateBench()
    bench.node(node())
    bench.beat()
    known = condition("AgentAlive", "Unknown", reason)
    bench.plan(plan(planned=[item(0, 3)], status={**READY["status"], "conditions": [known]}))
    assert not bench.state.cluster.plan_views()["n1"].agent_alive
    bench.clock.now += 1
    bench.beat()
    assert bench.state.cluster.plan_views()["n1"].agent_alive


def test_a_gpu_that_takes_too_long_is_supply_no_more() -> None:
    bench = StateBench()
    settled(bench)
    bench.plan(plan(version=11, generation=2, planned=[item(0, 4)], status=READY["status"]))
    assert bench.state.cluster.plan_views()["n1"].gpus[0].under_way
    for _ in range(10):
        bench.clock.now += 30
        bench.beat()
        bench.state.tick()
    view = bench.state.cluster.plan_views()["n1"].gpus[0]
    assert (view.settled, view.under_way) == (False, False)


def test_an_agent_falls_silent_at_the_very_moment_that_was_announced() -> None:
    """A moment at which start + silence and now - start round differently."""
    beats = Heartbeats(silent_seconds=60.0)
    start = 524265.4602071769
    beats.observe("n1", "t", start)
    end = beats.holds_until("n1", start)
    assert not beats.alive("n1", end, known_silent=False)


@pytest.mark.parametrize("came", ["after", "before", "bound when first seen"])
def test_a_pod_is_left_alone_when_its_scheduler_passes_it_over_twice(came: str) -> None:
    bench = StateBench()
    bench.pod(pod())
    for turn in range(2):
        other = f"other-{turn}"
        if came == "before":
            bench.pod(pod(other, requests={}, unschedulable=False))
        bench.clock.now += 1
        bench.triggers()
        bench.state.reserve({"uid-p": "n1"}, ready=["uid-p"])
        bench.clock.now += 1
        if came == "after":
            bench.pod(pod(other, requests={}, unschedulable=False))
        bench.pod(pod(other, requests={}, node="n2"))
        bench.clock.now += 59
        bench.state.tick()
        assert bench.triggers() == (("pod uid-p",) if came == "after" else ())

    assert bench.state.cluster.snapshot().bind_failures == ({"uid-p": "n1"} if came == "after" else {})


def test_pods_age_while_they_wait() -> None:
    bench = StateBench()
    bench.pod(pod("a"))
    bench.clock.now += 600
    bench.pod(pod("b"))

    assert bench.state.cluster.snapshot().aged == {bench.state.cluster.snapshot().pending[0].uid}

    bench.gone("a")
    assert not bench.state.cluster.snapshot().aged


def restarted(wall: float) -> StateBench:
    """As after a restart of the controller at this second."""
    bench = StateBench()
    bench.state = State(
        ClusterCache(options=PlannerOptions(), clock=bench.clock, wall=lambda: wall), window=bench.window
    )
    return bench


CREATED = 1_767_225_600
"""2026-01-01T00:00:00Z"""


def changed_at(time: str, **fields: str) -> Json:
    raw = pod("a")
    raw["metadata"] |= {
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "managedFields": [{"manager": "m", "operation": "Update", "time": time, **fields}],
    }
    return raw


@pytest.mark.parametrize(
    ("raw", "waited", "aged"),
    [
        (changed_at("2026-01-01T00:00:00Z"), 599, False),
        (changed_at("2026-01-01T00:00:00Z"), 600, True),
        # A gate was removed, or the spec changed otherwise: before that it did not wait for a place.
        (changed_at("2026-01-01T01:00:00Z"), 3600 + 599, False),
        (changed_at("2026-01-01T01:00:00Z"), 3600 + 600, True),
        # The scheduler's own writes are no change of the pod.
        (changed_at("2026-01-01T01:00:00Z", subresource="status"), 600, True),
        # No entry makes a pod older than it is.
        (changed_at("2020-01-01T00:00:00Z"), 599, False),
    ],
)
def test_pods_have_aged_before_a_restart(raw: Json, waited: int, aged: bool) -> None:
    bench = restarted(CREATED + waited)
    bench.pod(raw)

    assert bool(bench.state.cluster.snapshot().aged) is aged


def test_time_behind_a_gate_is_no_age() -> None:
    bench = restarted(CREATED + 10_000)
    gated = changed_at("2026-01-01T00:00:00Z")
    gated["spec"]["schedulingGates"] = [{"name": "example.com/gate"}]
    bench.pod(gated)
    assert not bench.state.cluster.snapshot().aged

    opened = changed_at("2026-01-01T02:46:40Z")  # 10,000 s after its creation
    bench.pod(opened)
    assert not bench.state.cluster.snapshot().aged
    bench.clock.now += 600
    assert bench.state.cluster.snapshot().aged


def test_the_next_pass_knows_for_which_pods_the_last_one_had_no_work_left() -> None:
    bench = StateBench()
    assert bench.state.cluster.snapshot().unexamined == ()
    bench.state.note_unexamined(("uid-b", "uid-a"))
    assert bench.state.cluster.snapshot().unexamined == ("uid-b", "uid-a")


DRAINED = Drained(
    uid="uid-a", key=("team", "a"), node="n1", gpu=0, partitions=("MIG-0",), holders=("a holder",), created=(0,)
)


def test_the_pod_whose_drain_was_given_up_rests() -> None:
    bench = StateBench()
    bench.pod(pod("a"))
    bench.state.note_drained([DRAINED])
    bench.clock.now += 1800
    bench.state.note_drained([DRAINED])

    assert bench.state.cluster.snapshot().resting == {"uid-a"}
    bench.clock.now += 600
    assert not bench.state.cluster.snapshot().resting


def test_a_pod_that_waits_on_is_one_to_drain_for() -> None:
    bench = StateBench()
    bench.pod(pod("a"))
    bench.clock.now += 3599
    assert bench.state.cluster.snapshot().aged == {"uid-a"}
    assert bench.state.cluster.snapshot().drained_for == frozenset()
    bench.clock.now += 1
    assert bench.state.cluster.snapshot().drained_for == {"uid-a"}


def after_a_pass(bench: StateBench, *drained: Drained, reserved: bool = False) -> None:
    bench.state.cluster.snapshot()
    bench.state.reserve({"uid-a": "n1"} if reserved else {})
    bench.state.note_drained(drained)


def woken_at(bench: StateBench, *, until: int) -> list[tuple[int, tuple[str, ...]]]:
    """Seconds from now, and why; each time there is a pass at once that leaves the pod without a place."""
    began, found = bench.clock.now, []
    while bench.clock.now < began + until:
        bench.clock.now += 10
        bench.beat()
        bench.state.tick()
        if keys := bench.triggers():
            found.append((int(bench.clock.now - began), tuple(key for key in keys if key != "resync")))
            after_a_pass(bench)
    return [(at, keys) for at, keys in found if keys]


WAITED = ("pods that have waited long",)


def test_a_pod_without_a_place_that_has_waited_long_starts_a_pass() -> None:
    """No resync hides it: a pod comes just when the last one has been."""
    bench = StateBench()
    bench.clock.now += 5.0
    bench.pod(pod("a"))
    bench.triggers()
    after_a_pass(bench)
    assert woken_at(bench, until=7000) == [(600, WAITED), (3600, WAITED)]


def test_pods_that_have_waited_long_one_after_the_other_start_few_passes() -> None:
    bench = StateBench()
    for name in "abcdefghij":
        bench.pod(pod(name))
        bench.clock.now += 5.0
    bench.triggers()
    after_a_pass(bench)
    assert [at for at, _ in woken_at(bench, until=1000)] == [550, 580, 610]


def test_a_pod_with_a_place_starts_none() -> None:
    bench = StateBench()
    bench.pod(pod("a"))
    bench.triggers()
    for _ in range(80):
        after_a_pass(bench, reserved=True)
        bench.clock.now += 100
        bench.state.tick()
        assert bench.triggers() == ()


def test_a_pass_that_fails_is_not_tried_again_because_a_pod_has_waited_long() -> None:
    """It has its own back-off."""
    bench = StateBench()
    bench.pod(pod("a"))
    bench.triggers()
    after_a_pass(bench)
    bench.clock.now += 600
    bench.state.cluster.snapshot()
    bench.state.tick()
    assert bench.triggers() == WAITED
    bench.state.tick()
    assert bench.triggers() == ()


def test_a_drain_that_is_given_up_starts_a_pass_and_the_end_of_the_pause_another() -> None:
    bench = StateBench()
    bench.pod(pod("a"))
    bench.clock.now += 3600
    bench.triggers()
    after_a_pass(bench, DRAINED)
    bench.clock.now += 1700
    after_a_pass(bench, DRAINED)
    bench.clock.now += 100
    bench.state.tick()
    assert bench.triggers() == WAITED, "nothing has left for half an hour"
    bench.state.cluster.snapshot()
    bench.state.note_drained([DRAINED])
    assert bench.triggers() == ("a drain that is given up",)
    after_a_pass(bench)
    assert woken_at(bench, until=1000) == [(600, WAITED)]


def test_a_nomination_by_others_that_counts_no_more_starts_a_pass() -> None:
    bench = StateBench()
    settled(bench)
    bench.pod(pod("a", nominated="n1"))
    bench.triggers()
    assert bench.state.cluster.snapshot().pending[0].nominated_node == "n1"
    bench.state.note_drained(())
    bench.clock.now += 150
    bench.state.cluster.snapshot()
    bench.state.note_drained(())
    assert woken_at(bench, until=200) == [(150, WAITED)]
    assert bench.state.cluster.snapshot().pending[0].nominated_node == ""


def test_a_drain_whose_pod_is_gone_needs_a_pass_although_no_other_waits() -> None:
    bench = StateBench()
    bench.pod(pod("a"))
    bench.state.note_drained([DRAINED])
    bench.window.take()
    bench.gone("a")

    assert set(bench.window.take()) == {"a drain without its pod"}


def test_ages_of_what_is_gone() -> None:
    bench = StateBench()
    settled(bench)
    assert bench.state.cluster.plan_gone_for("n1") == float("inf")
    bench.state.observe_node("n1", None)
    bench.state.tick()
    bench.clock.now += 40
    bench.state.tick()
    assert bench.state.cluster.node_gone_for("n1") == 40
    bench.state.observe_plan("n1", None)
    bench.clock.now += 7
    assert bench.state.cluster.plan_gone_for("n1") == 7
    bench.node(node())
    bench.state.tick()
    assert bench.state.cluster.node_gone_for("n1") == 0


def test_what_is_long_gone_is_forgotten() -> None:
    bench = StateBench()
    bench.plan(plan("n1", planned=[]))
    bench.state.observe_plan("n1", None)
    bench.clock.now += 86400
    bench.state.tick()
    assert bench.state.cluster.plan_gone_for("n1") == float("inf")


def test_nothing_is_kept_of_nodes_that_came_and_went() -> None:
    bench = StateBench()
    settled(bench)
    bench.pod(pod(node="n1"))
    bench.gone("p")
    bench.pod(pod("never-bound", nominated="n1"))
    bench.gone("never-bound")
    bench.plan(plan(version=11, planned=[item(0, 3)]))  # its status is cleared before it is deleted
    bench.state.observe_plan("n1", None)
    bench.state.observe_node("n1", None)
    bench.beat()  # the agent's last one comes after
    bench.state.write_refused("n1", "no", until=bench.clock.now + 5)  # and so does the answer to our last write
    bench.clock.now += 86400
    bench.state.tick()
    cluster = bench.state.cluster
    plans = cluster.plan_store
    kept = [vars(part) for part in (bench.state, cluster, cluster.pod_store, plans, plans.heartbeats, plans._progress)]
    assert [name for part in kept for name, found in part.items() if isinstance(found, dict | set) and found] == []
