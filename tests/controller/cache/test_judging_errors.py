"""A pod whose judging raises an error is set aside, named and reported; no other pod or node notices it."""

from dataclasses import replace
from typing import Any

import pytest

from controller.api.pods import read_pod
from controller.model.reasons import UnplacedReason
from controller.model.views import PodView
from controller.planning import plan
from tests.builders.objects import SLICE, node, pod
from tests.controller.cache.state_bench import StateBench, settled
from tests.controller.odd.unreadable import ODD

KEY = ("default", "odd")


def odd_pod(**fields: Any) -> PodView:
    found = read_pod(pod("odd"))
    assert isinstance(found, PodView)
    return replace(found, **fields)


@pytest.mark.parametrize("fields", [{"requests": ODD}, {"gpu": ODD}, {"misnamed": ODD}], ids=str)
@pytest.mark.parametrize("first", [True, False])
def test_a_pod_whose_judging_raises_costs_no_other_its_place(fields: dict[str, Any], first: bool) -> None:
    bench = StateBench()
    settled(bench)
    if not first:
        bench.pod(pod("good"))
    bench.state.observe_pod(KEY, odd_pod(**fields))
    if first:
        bench.pod(pod("good"))

    result = plan(bench.state.cluster.snapshot())

    assert [placed.key[1] for placed in result.placed] == ["good"]
    assert [failure.key for failure in result.pod_failures] == [KEY]
    assert result.pod_failures[0].message == "OverflowError: int too large to convert to float"
    (missed,) = result.unplaced
    assert (missed.key, missed.reason) == (KEY, UnplacedReason.NOT_SERVED)
    assert missed.message.startswith("Planning this pod failed (OverflowError)")


def test_it_keeps_no_other_from_being_judged_again_nor_a_node_from_being_read() -> None:
    bench = StateBench()
    settled(bench)
    bench.state.observe_pod(KEY, odd_pod(gpu=ODD))
    bench.pod(pod("shared", requests={"nvidia.com/gpu.shared": "1"}))
    assert [missed.key[1] for missed in bench.state.cluster.snapshot().demands.refused] == ["shared"]

    bench.node(node(allocatable={"nvidia.com/gpu.shared": "4", SLICE: "1"}))

    assert bench.state.cluster.snapshot().demands.refused == ()
    assert "nvidia.com/gpu.shared" in bench.state.cluster.snapshot().nodes[0].allocatable


def test_a_pod_that_has_got_its_node_or_is_gone_is_judged_no_more() -> None:
    bench = StateBench()
    settled(bench)
    bench.state.observe_pod(KEY, odd_pod(gpu=ODD))
    bench.state.observe_pod(KEY, None)

    assert plan(bench.state.cluster.snapshot()).pod_failures == ()
