"""Real pods: 300 rows of the Alibaba trace on ten H100 servers, more than fits by CPU and by GPU at once.

A fraction of a GPU in the trace was one of a card of about 24 GB: GB = 24 * milli / 1000, up to 10 GB is a 1g.10gb, up
to 20 GB a 2g.20gb, more (a whole card, too) a 3g.40gb. The bound was computed by `benchmarks.oracle`, node by node.
"""

import csv
from pathlib import Path

import pytest

from controller.model.snapshot import Snapshot
from controller.model.views import PodView
from controller.planning import plan
from tests.builders.models import H100
from tests.controller.planner.builders import cluster, mig, node, plan_of, pod
from tests.controller.planner.checker import check

ROWS = Path(__file__).parent / "data" / "openb_pods_300.csv"
EXACT_BOUND = 222


def profile(gpu_milli: int) -> str:
    gb = 24 * gpu_milli / 1000
    return "1g.10gb" if gb <= 10 else "2g.20gb" if gb <= 20 else "3g.40gb"


def pods() -> list[PodView]:
    with ROWS.open(newline="") as rows:
        return [
            pod(
                row["name"],
                profile(int(row["gpu_milli"])),
                cpu=int(row["cpu_milli"]),
                memory_gib=int(row["memory_mib"]) // 1024,
                created=number,
            )
            for number, row in enumerate(csv.DictReader(rows))
        ]


@pytest.fixture
def snapshot() -> Snapshot:
    servers = []
    for number in range(10):
        gpus = [mig(index, gpu_model=H100) for index in range(8)]
        name = f"node-{number}"
        servers.append((node(name, gpus=gpus, product=H100.product), plan_of(name, gpus=gpus)))
    return cluster(*servers, pending=pods())


def test_places_as_many_as_can_be_placed(snapshot: Snapshot) -> None:
    result = plan(snapshot)

    check(snapshot, result)
    assert len(result.placed) >= 0.99 * EXACT_BOUND
    assert result.bound <= 1.05 * EXACT_BOUND


def test_the_recorded_bound_is_exact(snapshot: Snapshot) -> None:
    oracle = pytest.importorskip("benchmarks.oracle", reason="the exact bound needs the benchmark extra")

    bound = oracle.exact_bound(snapshot, per_node=True)

    assert (bound.pods, bound.solved) == (EXACT_BOUND, True)


def test_every_pod_that_is_left_out_gets_a_reason(snapshot: Snapshot) -> None:
    result = plan(snapshot)

    assert len(result.placed) + len(result.unplaced) == 300
    assert all(len(one.message) > 20 for one in result.unplaced)
