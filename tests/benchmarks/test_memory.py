"""The cluster that the memory benchmark makes up is one that the controller can read and plan; and it is measured."""

import pytest

from benchmarks.memory import __main__ as memory
from benchmarks.memory.objects import Sizes, collections
from controller.api.nodes import read_node
from controller.api.plans import PlanReading, read_plan
from controller.api.pods import read_pod
from controller.model.views import NodeView, PodView
from crds.v1alpha1 import paths

pytestmark = pytest.mark.slow

SIZES = Sizes(nodes=3, gpus=2, pods=20, pending=5)


def test_every_object_can_be_read() -> None:
    found = collections(SIZES)
    nodes = [read_node(found[paths.NODES][1](number)) for number in range(SIZES.nodes)]
    plans = [read_plan(found[paths.PLANS][1](number)) for number in range(SIZES.nodes)]
    pods = [read_pod(found[paths.PODS][1](number)) for number in range(SIZES.pods)]

    assert all(isinstance(one, NodeView) for one in nodes)
    assert all(isinstance(one, PlanReading) for one in plans)
    views = [one for one in pods if isinstance(one, PodView)]
    assert len({view.key for view in views}) == SIZES.pods
    assert sum(not view.node for view in views) == SIZES.pending
    held = [view.title for view in views if view.node and view.gpu]
    reported = [
        part["pod"]
        for number in range(SIZES.nodes)
        for gpu in found[paths.PLANS][1](number)["status"]["gpus"]
        for part in gpu.get("partitions", ())
        if part["state"] == "Used"
    ]
    assert sorted(held) == sorted(reported)


def test_a_small_cluster_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "SETTLING_SECONDS", 0.0)

    found = memory.measure(SIZES)

    assert found["placed"] == SIZES.pending
    for stretch in ("listed", "watched", "planned"):
        assert 10 < int(str(found[f"{stretch}_mib"])) <= int(str(found["peak_mib"]))
