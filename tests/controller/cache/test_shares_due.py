"""A GPU that is to be shared in equal parts starts a pass by itself: no pod waits for what no node has yet."""

from __future__ import annotations

import pytest

from tests.builders.objects import Json, gpu, node, plan, status
from tests.controller.cache.state_bench import Bench

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
    bench = Bench()
    bench.node(labelled())
    bench.beat()
    bench.triggers()
    bench.plan(raw)
    assert bench.triggers() == (("node n1",) if due else ())


def test_a_label_starts_one_too_and_its_removal_none() -> None:
    bench = Bench()
    bench.node(labelled(**{"gpuplan.dev/mps-replicas": "0"}))
    bench.beat()
    bench.plan(reported(FREE))
    assert bench.triggers() == ()
    bench.node(labelled())
    assert bench.triggers() == ("node n1",)
    bench.node(node(labels={"gpuplan.dev/gpu-partitioning": "mig", **FOUR}))
    assert bench.triggers() == ()


def test_what_is_planned_already_starts_none() -> None:
    bench = Bench()
    item = {"index": 0, "uuid": gpu()["uuid"], "mps": {"replicas": 4}}
    bench.node(labelled())
    bench.beat()
    shown = {**gpu(item=item), "migMode": "Disabled"}
    bench.plan(plan(planned=[item], status=status(shown)))
    assert bench.triggers() == ()
