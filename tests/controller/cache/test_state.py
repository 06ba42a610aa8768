"""The state: what it makes of watches and own writes: snapshot, reservations, and which Node a plan is about."""

import pytest

from tests.builders.objects import Json, gpu, item, node, plan, pod, status
from tests.builders.views import plan_reading
from tests.controller.cache.state_bench import READY, StateBench, settled


def test_the_snapshot_is_sorted_and_split() -> None:
    bench = StateBench()
    for name in ("b", "a"):
        bench.pod(pod(name))
        bench.pod(pod(f"{name}-bound", node="n1"))
        bench.node(node(f"n-{name}"))
        bench.plan(plan(f"n-{name}"))
    bench.node(node("n1"))
    bench.pod(pod("finished", node="n1", phase="Succeeded"))
    bench.pod(pod("elsewhere", node="cpu-node"))
    snapshot = bench.state.cluster.snapshot()
    assert [p.name for p in snapshot.pending] == ["a", "b"]
    assert [p.name for p in snapshot.pods] == ["a-bound", "b-bound"]
    assert [n.name for n in snapshot.nodes] == ["n-a", "n-b", "n1"]
    assert [p.name for p in snapshot.plans] == ["n-a", "n-b"]


def test_a_pod_is_judged_once_per_event_and_not_per_snapshot() -> None:
    bench = StateBench()
    bench.pod(pod("a"))
    first, second = (bench.state.cluster.snapshot().demands.helpable for _ in range(2))
    bench.pod(pod("a", metadata={"labels": {"team": "x"}}))
    (third,) = bench.state.cluster.snapshot().demands.helpable

    assert first[0] is second[0]
    assert third.pod.labels == (("team", "x"),)


def test_a_node_without_gpus_is_left_out() -> None:
    bench = StateBench()
    raw = node(mode=None)
    raw["metadata"]["labels"] = {}
    bench.node(raw)
    assert bench.state.cluster.snapshot().nodes == ()


def test_reservations_last_until_the_pod_is_bound_or_gone() -> None:
    bench = StateBench()
    for name in ("n1", "n2"):
        bench.node(node(name))
    for name in ("a", "b", "c", "other"):
        bench.pod(pod(name))
    bench.state.reserve({"uid-a": "n1", "uid-b": "n1", "uid-c": "n2", "uid-long-gone": "n3"})
    assert bench.state.cluster.reservations() == {"uid-a": "n1", "uid-b": "n1", "uid-c": "n2"}
    bench.triggers()
    bench.pod(pod("a", node="n1"))
    assert bench.triggers() == ()  # as reserved: nothing is left for the others
    bench.pod(pod("b", node="n5"))
    assert bench.triggers() == ("node n1",)
    bench.gone("c")
    assert bench.triggers() == ("node n2",)
    assert bench.state.cluster.reservations() == {}


def test_a_pod_that_was_deleted_and_recreated_is_another_pod() -> None:
    bench = StateBench()
    bench.node(node())
    bench.pod(pod(uid="one"))
    bench.state.reserve({"one": "n1"})
    bench.pod(pod(uid="two"))
    assert bench.triggers() == ("pod two", "node n1")
    assert bench.state.cluster.reservations() == {}


@pytest.mark.parametrize(
    "raw", [plan(planned=[item(0, 3)], spec={"paused": True}, status=status(gpu(state="Changing")))]
)
def test_nothing_is_expected_of_a_paused_plan(raw: Json) -> None:
    bench = StateBench()
    bench.node(node())
    bench.beat()
    bench.plan(raw)
    assert not bench.state.cluster.plan_views()["n1"].gpus[0].under_way


def test_a_status_about_an_earlier_node_settles_nothing() -> None:
    bench = StateBench()
    bench.node(node(uid="another"))
    bench.beat()
    bench.plan(READY)
    assert not bench.state.cluster.plan_views()["n1"].gpus[0].settled


def test_an_answer_that_comes_after_the_deletion_revives_nothing() -> None:
    bench = StateBench()
    settled(bench)
    bench.state.observe_plan("n1", None)
    bench.state.plan_answered("n1", plan_reading(plan(version=30, generation=2)))
    assert not bench.state.cluster.plan_exists("n1")
    bench.plan(plan(version=31, uid="another"))
    assert bench.state.cluster.plan_exists("n1")
