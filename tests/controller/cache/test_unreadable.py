"""Objects that cannot be read: left out alone, and what a pod holds stays held."""

import pytest

from controller.api.pods import read_pod
from tests.builders.objects import SLICE, Json, plan, pod
from tests.controller.cache.state_bench import READY, StateBench, settled


def test_a_broken_object_is_left_out_and_the_rest_continues() -> None:
    bench = StateBench()
    settled(bench)
    broken = plan(version=11, spec={"gpus": "none"})
    bench.plan(broken)
    assert bench.state.cluster.snapshot().plans == ()
    assert bench.state.cluster.plan_exists("n1")
    assert [key for key in bench.state.cluster.unreadable()] == [("plan", "n1")]
    bench.plan(READY | {"metadata": READY["metadata"] | {"resourceVersion": "12"}})
    assert [view.name for view in bench.state.cluster.snapshot().plans] == ["n1"]
    assert bench.state.cluster.unreadable() == {}


BAD_TIME = {"creationTimestamp": "yesterday"}
BAD_AMOUNTS: Json = {"containers": [{"name": "main", "resources": {"limits": {SLICE: "some"}}}]}


def broken(raw: Json, metadata: Json | None = None, spec: Json | None = None) -> Json:
    return raw | {"metadata": raw["metadata"] | (metadata or {}), "spec": raw["spec"] | (spec or {})}


@pytest.mark.parametrize("readable_before", [False, True])
def test_a_bound_pod_holds_its_slices_whatever_else_is_wrong_with_it(readable_before: bool) -> None:
    bench = StateBench()
    settled(bench)
    held = pod("holder", node="n1", requests={SLICE: "2"})
    if readable_before:
        bench.pod(held)
    bench.pod(broken(held, metadata=BAD_TIME))
    assert [found.gpu for found in bench.state.cluster.snapshot().pods] == [((SLICE, 2),)]
    assert [found.gpu for found in bench.state.cluster.gpu_pods("n1")] == [((SLICE, 2),)]
    assert list(bench.state.cluster.unreadable()) == [("pod", "default/holder")]
    bench.gone("holder")
    assert bench.state.cluster.snapshot().pods == ()
    assert bench.state.cluster.unreadable() == {}


@pytest.mark.parametrize("before", [pod("holder", node="n1"), pod("holder")], ids=["bound", "pending"])
def test_amounts_that_cannot_be_read_are_the_last_ones_that_could(before: Json) -> None:
    bench = StateBench()
    settled(bench)
    bench.pod(before)
    bench.pod(broken(pod("holder", node="n1"), spec=BAD_AMOUNTS))
    snapshot = bench.state.cluster.snapshot()
    assert [found.gpu for found in snapshot.pods] == [((SLICE, 1),)]
    assert snapshot.pending == ()
    bench.pod(pod("holder", node="n1", phase="Succeeded"))
    assert bench.state.cluster.snapshot().pods == ()


def test_a_pod_of_which_nothing_can_be_read_any_more_is_still_there() -> None:
    bench = StateBench()
    settled(bench)
    bench.pod(pod("holder", node="n1"))
    bench.state.observe_pod(("default", "holder"), read_pod({"metadata": {"name": "holder"}, "spec": "none"}))
    assert [found.gpu for found in bench.state.cluster.snapshot().pods] == [((SLICE, 1),)]


def test_unknown_holdings_are_logged_once_and_again_after_the_pod_could_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = StateBench()
    settled(bench)
    unknown = broken(pod("holder", node="n1"), spec=BAD_AMOUNTS)
    for raw, lines in ((unknown, 1), (unknown, 1), (pod("holder", node="n1"), 1), (None, 1), (unknown, 2)):
        if raw is None:
            bench.gone("holder")
        else:
            bench.pod(raw)
        assert caplog.text.count("nothing is planned on node n1: ") == lines


def test_nothing_is_planned_where_the_holdings_of_a_pod_are_unknown() -> None:
    bench = StateBench()
    settled(bench)
    bench.pod(pod("before", node="n1", uid="another"))
    bench.pod(broken(pod("holder", node="n1"), spec=BAD_AMOUNTS))
    assert bench.state.cluster.snapshot().nodes == ()
    assert bench.state.cluster.snapshot().pods == ()
    bench.pod(pod("waits"))
    bench.triggers()
    bench.pod(broken(pod("holder", node="n1", phase="Failed"), spec=BAD_AMOUNTS))
    assert bench.triggers() == ("node n1",)
    assert [found.name for found in bench.state.cluster.snapshot().nodes] == ["n1"]
    bench.pod(broken(pod("waiting"), spec=BAD_AMOUNTS))  # holds nothing
    assert [found.name for found in bench.state.cluster.snapshot().nodes] == ["n1"]
