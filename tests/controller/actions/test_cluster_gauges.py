"""The gauges that are read at each scrape: what they sum, and what one node breaks in them."""

import pytest

from controller.actions import cluster_gauges
from controller.model.views import NodeView
from controller.planner.inventory.eligibility import node_stock
from controller.planner.inventory.stock import NodeStock
from tests.builders.models import H100
from tests.builders.objects import gpu, node, partition, pod, status
from tests.controller.cluster import Bench


def test_a_node_whose_stock_cannot_be_taken_leaves_the_page_as_it_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning fails for it in the same way, and the alert about that needs the page."""

    def defective(found: NodeView, *rest: object) -> NodeStock:
        if found.name == "n1":
            raise LookupError("a defect")
        return node_stock(found, *rest)  # type: ignore[arg-type] # as it was called

    monkeypatch.setattr(cluster_gauges, "node_stock", defective)
    for name in ("n1", "n2"):
        bench.cluster.node(node(name))
        bench.cluster.plan(name)
        bench.cluster.agent_status(name, status(gpu(partitions=[partition(0)])))
    bench.load()

    read = bench.metrics.registry.get_sample_value
    assert read("gpuplan_partitions", {"profile": "1g.10gb", "state": "Free"}) == 2


def test_partitions_are_summed_over_nodes_and_follow_each_change(bench: Bench) -> None:
    def total(state: str) -> float | None:
        read = bench.metrics.registry.get_sample_value
        return read("gpuplan_partitions", {"profile": "1g.10gb", "state": state})

    for name in ("n1", "n2"):
        bench.cluster.node(node(name))
        bench.cluster.plan(name)
        bench.cluster.agent_status(name, status(gpu(partitions=[partition(0), partition(1, "Used")])))
    bench.load()
    for _ in range(2):
        assert (total("Free"), total("Used")) == (2, 2)
    bench.cluster.agent_status("n2", status(gpu(partitions=[partition(0, "Used"), partition(1, "Used")])))
    bench.load()
    assert (total("Free"), total("Used")) == (1, 3)
    bench.state.observe_plan("n2", None)
    assert total("Used") == 1


def test_fullness_is_by_model_and_use_and_held_plans_and_waiting_teams_are_named(bench: Bench) -> None:
    read = bench.metrics.registry.get_sample_value
    for name, found in (("n1", [partition(0), partition(1, "Used")]), ("n2", []), ("n3", [partition(0)])):
        bench.cluster.node(node(name))
        bench.cluster.plan(name, **({"paused": True} if name == "n2" else {"mode": "Manual"} if name == "n3" else {}))
        bench.cluster.agent_status(name, status(gpu(partitions=found)))
    bench.cluster.pod(pod("waits", limits={"nvidia.com/mig-1g.10gb": 1}))
    bench.load()

    assert [read("gpuplan_gpus", {"model": "H100-80GB", "use": use}) for use in ("mig", "none")] == [1, 2]
    states = ("used", "idle", "free")
    memory = {state: read("gpuplan_gpu_memory_bytes", {"model": "H100-80GB", "state": state}) or 0 for state in states}
    assert 0 < memory["used"] < memory["idle"] < memory["free"]
    assert sum(memory.values()) == 3 * H100.memory_mib << 20
    assert read("gpuplan_held_plan", {"node": "n2", "by": "paused"}) == 1
    assert read("gpuplan_held_plan", {"node": "n3", "by": "Manual"}) == 1
    assert read("gpuplan_held_plan", {"node": "n1", "by": "paused"}) is None
    assert read("gpuplan_waiting_pods", {"namespace": "default"}) == 1
