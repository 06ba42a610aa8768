"""The kubelet's heartbeat in a Node: the agent keeps it, and makes no pass for it."""

from typing import Any

from nodeagent.cache import NodeCache
from nodeagent.observed.node import ObservedNode, parse_node
from nodeagent.observed.pod_book import PodBook
from tests.clock import Clock

WRITTEN = "2026-01-01T00:00:10Z"


def node(version: str = "1", **ready: Any) -> ObservedNode:
    conditions = [{"type": "DiskPressure", "lastHeartbeatTime": "2020-01-01T00:00:00Z"}, {"type": "Ready", **ready}]
    metadata = {"name": "n", "uid": "u", "resourceVersion": version}
    return parse_node({"metadata": metadata, "status": {"conditions": conditions}})


def test_the_kubelet_s_heartbeat_makes_no_pass_due() -> None:
    woken: list[str] = []
    cache = NodeCache(PodBook(clock=Clock()), wake=lambda: woken.append("pass"))
    before, after = node(lastHeartbeatTime=WRITTEN), node("2", lastHeartbeatTime="2026-01-01T00:05:10Z")

    cache.on_node(("", "n"), before, after)

    assert woken == []
    assert cache.node.get() == after
