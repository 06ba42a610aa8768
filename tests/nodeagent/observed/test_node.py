"""When the kubelet wrote the Node: the agent reads it, and makes no pass for it."""

from typing import Any

import pytest

from nodeagent.cache import NodeCache
from nodeagent.observed.node import ObservedNode, parse_node
from nodeagent.observed.pod_book import PodBook
from tests.clock import Clock

WRITTEN = "2026-01-01T00:00:10Z"


def node(version: str = "1", **ready: Any) -> ObservedNode:
    conditions = [{"type": "DiskPressure", "lastHeartbeatTime": "2020-01-01T00:00:00Z"}, {"type": "Ready", **ready}]
    metadata = {"name": "n", "uid": "u", "resourceVersion": version}
    return parse_node({"metadata": metadata, "status": {"conditions": conditions}})


@pytest.mark.parametrize(
    ("ready", "seconds"),
    [
        ({"lastHeartbeatTime": WRITTEN, "status": "True"}, 1767225610),
        ({"lastHeartbeatTime": WRITTEN, "status": "False"}, 1767225610),
        ({"lastHeartbeatTime": WRITTEN, "status": "Unknown"}, 0),
        ({"lastHeartbeatTime": None, "status": "True"}, 0),
        ({}, 0),
    ],
)
def test_the_kubelet_s_last_write_is_that_of_the_ready_condition(ready: dict[str, Any], seconds: int) -> None:
    assert node(**ready).reported_at == seconds


def test_a_node_without_conditions_was_not_written_by_a_kubelet_yet() -> None:
    assert parse_node({"metadata": {"name": "n"}}).reported_at == 0


def test_the_kubelet_s_heartbeat_makes_no_pass_due() -> None:
    woken: list[str] = []
    cache = NodeCache(PodBook(clock=Clock()), wake=lambda: woken.append("pass"))
    before, after = node(lastHeartbeatTime=WRITTEN), node("2", lastHeartbeatTime="2026-01-01T00:05:10Z")

    cache.on_node(("", "n"), before, after)

    assert woken == []
    assert cache.node.get() == after
