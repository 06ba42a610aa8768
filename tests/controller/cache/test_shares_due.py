"""A GPU that is to be shared in equal parts starts a pass by itself: no pod waits for what no node has yet."""

import pytest

from controller.model.reasons import UnplacedReason
from tests.builders.objects import Json, gpu, node, plan, pod, status
from tests.controller.cache.state_bench import StateBench

FOUR = {"gpuplan.dev/mps-replicas": "4"}
FREE = {"resource": "nvidia.com/gpu", "uuid": "GPU-0", "state": "Free", "memoryMiB": 81559}


def labelled(**labels: str) -> Json:
    return node(labels={"gpuplan.dev/gpu-partitioning": "mps", **FOUR, **labels})


def reported(partition: Json, **spec: object) -> Json:
    """A plan without items, whose agent shows one GPU."""
    shown = {**gpu(state="Unmanaged", partitions=[partition]), "migMode": "Disabled"}
    return plan(status=status(shown), spec=dict(spec))


@pytest.mark.parametrize(
    ("raw", "due"),
    [
        (reported(FREE), True),
        (reported({**FREE, "state": "Used"}), False),
        (reported({**FREE, "state": "Pending"}), False),
        (reported(FREE, mode="Manual"), False),
        (reported(FREE, paused=True), False),
        (reported(FREE, gpus=[{"index": 0, "whole": {}}]), False),
    ],
    ids=["idle", "in use", "not schedulable yet", "Manual", "paused", "pinned"],
)
def test_an_idle_gpu_starts_a_pass(raw: Json, due: bool) -> None:
    bench = StateBench()
    bench.node(labelled())
    bench.beat()
    bench.triggers()
    bench.plan(raw)
    assert bench.triggers() == (("node n1",) if due else ())


def test_a_label_starts_one_too_and_its_removal_none() -> None:
    bench = StateBench()
    bench.node(labelled(**{"gpuplan.dev/mps-replicas": "0"}))
    bench.beat()
    bench.plan(reported(FREE))
    assert bench.triggers() == ()
    bench.node(labelled())
    assert bench.triggers() == ("node n1",)
    bench.node(node(labels={"gpuplan.dev/gpu-partitioning": "mig", **FOUR}))
    assert bench.triggers() == ()


def test_what_is_planned_already_starts_none() -> None:
    bench = StateBench()
    item = {"index": 0, "uuid": gpu()["uuid"], "mps": {"replicas": 4}}
    bench.node(labelled())
    bench.beat()
    shown = {**gpu(item=item), "migMode": "Disabled"}
    bench.plan(plan(planned=[item], status=status(shown)))
    assert bench.triggers() == ()


@pytest.mark.parametrize(("label", "due"), [("4", True), ("0", True), ("60", False)])
def test_shares_that_were_refused_start_one_when_others_are_requested(label: str, due: bool) -> None:
    bench = StateBench()
    item = {"index": 0, "uuid": gpu()["uuid"], "mps": {"replicas": 60}}
    bench.node(labelled(**{"gpuplan.dev/mps-replicas": label}))
    bench.beat()
    shown = {**gpu(item=item, state="Failed", partitions=[FREE]), "migMode": "Disabled"}
    bench.plan(plan(planned=[item], status=status(shown)))
    assert bench.triggers() == (("node n1",) if due else ())
    bench.clock.now += 60
    bench.state.tick()
    bench.triggers()
    bench.node(labelled(**{"gpuplan.dev/mps-replicas": label, "news": "true"}))
    assert bench.triggers() == (), "no pass could correct the plan of a silent agent"


def ack_node(name: str) -> Json:
    return node(name, mode=None, labels={"ack.node.gpu.schedule": "mps"}, allocatable={"aliyun.com/gpu-mem": "79"})


def units(name: str, gib: int) -> Json:
    """A plan whose only GPU is shared in units."""
    item = {"index": 0, "uuid": gpu()["uuid"], "mps": {"slices": [{"memoryGiB": gib}]}}
    shown = {**gpu(item=item), "migMode": "Disabled"}
    return plan(name, planned=[item], status=status(shown))


def refused(bench: StateBench) -> list[UnplacedReason]:
    return [one.reason for one in bench.state.cluster.snapshot().demands.refused]


def test_a_request_for_units_is_judged_again_when_the_largest_gpu_changes() -> None:
    """Whatever the watches bring first, and on a node whose resource another one has already."""
    bench = StateBench()
    bench.pod(pod("a", requests={"aliyun.com/gpu-mem": 40}))
    bench.node(ack_node("n1"))
    assert refused(bench) == []
    bench.plan(units("n1", 20))
    assert refused(bench) == [UnplacedReason.NEVER_FITS]
    bench.node(ack_node("n2"))
    bench.plan(units("n2", 79))
    assert refused(bench) == []
    bench.state.observe_plan("n2", None)
    assert refused(bench) == [UnplacedReason.NEVER_FITS]


@pytest.mark.parametrize(
    ("labels", "resource", "reasons"),
    [
        ({"gpuplan.dev/gpu-partitioning": "mps", **FOUR}, "nvidia.com/gpu.shared", []),
        ({"ack.node.gpu.schedule": "mps"}, "aliyun.com/gpu-mem", []),
        ({"gpuplan.dev/gpu-partitioning": "mig", **FOUR}, "nvidia.com/gpu.shared", [UnplacedReason.NOT_SERVED]),
        ({"gpuplan.dev/gpu-partitioning": "mps"}, "nvidia.com/gpu.shared", [UnplacedReason.NOT_SERVED]),
    ],
)
def test_shares_that_a_node_will_have_are_served(
    labels: dict[str, str], resource: str, reasons: list[UnplacedReason]
) -> None:
    """Its agent has not answered yet: "no node has it" would be believed."""
    bench = StateBench()
    bench.pod(pod("a", requests={resource: 1}))
    assert refused(bench) == [UnplacedReason.NOT_SERVED]
    bench.node(node(mode=None, labels=labels, allocatable={"cpu": "8"}))
    assert refused(bench) == reasons
