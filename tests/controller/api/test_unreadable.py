"""Broken objects are values with a reason, whatever they hold."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.api.nodes import read_node
from controller.api.pods import read_pod
from controller.api.reading import Unreadable
from controller.model.views import NodeView, PodView
from tests.builders.objects import Json
from tests.controller.api.raw_pods import pod


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"metadata": {"name": "p", "namespace": "a"}},
        {"metadata": None, "spec": {}},
        pod({"containers": "none"}),
        pod({"containers": [{"name": "a", "resources": {"requests": {"cpu": "much"}}}]}),
        pod(creationTimestamp="yesterday"),
    ],
)
def test_a_broken_pod_is_a_value_with_a_reason(raw: Json) -> None:
    read = read_pod(raw)
    assert isinstance(read, Unreadable)
    assert read.kind == "pod"
    assert read.reason


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(pod()["spec"])), inner),
        max_leaves=6,
    )
)
def test_whatever_the_spec_holds_the_watch_survives(spec: Any) -> None:
    assert isinstance(read_pod(pod() | {"spec": spec}), PodView | Unreadable)
    assert isinstance(read_node(pod() | {"status": spec}), NodeView | Unreadable)
