"""The workload of the scale runs: the same from the same seed, at the stated rate, and possible."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.scale.workload import (
    ANNOTATION_SECONDS,
    MIX,
    arrivals,
    gpus_of,
    model,
    node_names,
    node_object,
    pod_object,
    shared_by_mps,
)
from controller.api.nodes import read_node
from controller.api.pods import read_pod
from controller.model.views import NodeView, PodView
from partitioning.layouts import check_layout


@given(
    count=st.integers(min_value=1, max_value=300),
    per_second=st.floats(min_value=0.5, max_value=500),
    seed=st.integers(),
)
def test_pods_arrive_in_order_and_at_the_rate(count: int, per_second: float, seed: int) -> None:
    found = arrivals(count, per_second=per_second, seed=seed)
    times = [pod.at_seconds for pod in found]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(count / per_second)
    assert len({pod.name for pod in found}) == count
    assert found == arrivals(count, per_second=per_second, seed=seed)


def test_every_request_of_the_mix_comes() -> None:
    found = arrivals(2000, per_second=40, seed=1)
    assert {pod.resource for pod in found} == {resource for resource, _ in MIX}
    ending = [pod for pod in found if pod.ends_after_seconds is not None]
    assert 300 < len(ending) < 500


@given(number=st.integers(min_value=0, max_value=9999), gpus=st.integers(min_value=1, max_value=8), seed=st.integers())
def test_what_a_gpu_starts_with_can_exist(number: int, gpus: int, seed: int) -> None:
    name = node_names(number + 1)[-1]
    found = gpus_of(name, gpus, seed)
    assert len({gpu.uuid for gpu in found}) == gpus
    assert found == gpus_of(name, gpus, seed)
    for gpu in found:
        assert gpu.mig is not shared_by_mps(name)
        assert check_layout(model(), gpu.layout) is None
        assert gpu.mig or not gpu.layout.instances


def test_one_node_in_five_is_shared_and_all_are_read_by_the_controller() -> None:
    names = node_names(10)
    views = [
        read_node({**(raw := node_object(name, 4)), "metadata": {**raw["metadata"], "uid": name}}) for name in names
    ]
    assert all(isinstance(view, NodeView) and view.ready for view in views)
    assert [getattr(view, "partitioning", None) for view in views] == (["mig"] * 4 + ["mps"]) * 2


def test_pods_are_read_by_the_controller() -> None:
    for arrival in arrivals(50, per_second=40, seed=1):
        raw = pod_object(arrival)
        view = read_pod({**raw, "metadata": {**raw["metadata"], "uid": arrival.name}})
        assert isinstance(view, PodView)
        assert view.gpu == ((arrival.resource, 1),)
        ends = raw["metadata"]["annotations"].get(ANNOTATION_SECONDS)
        assert (ends is None) == (arrival.ends_after_seconds is None)
