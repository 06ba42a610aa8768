"""Pods that come one by one, each bound before the next: GPUs that nothing has touched stay whole."""

import pytest

from benchmarks.replay import applied, bound
from controller.model.snapshot import Snapshot
from controller.model.views import PodView
from controller.planning import plan
from partitioning.models import GpuModel
from tests.builders.models import A30, A100, H100
from tests.controller.planner.builders import cluster, holder, mig, mps, pod, server
from tests.controller.planner.checker import check


def one_by_one(snapshot: Snapshot, *pods: PodView) -> Snapshot:
    """Each is planned alone, gets what is planned for it, and stays."""
    for one in pods:
        waiting = Snapshot(nodes=snapshot.nodes, plans=snapshot.plans, pods=snapshot.pods, pending=(one,))
        result = plan(waiting)
        check(waiting, result)
        after, _ = applied(waiting, result)
        snapshot = bound(after, {placed.uid: placed.node for placed in result.placed})
    return snapshot


def touched(snapshot: Snapshot) -> list[tuple[str, int]]:
    return [(view.name, gpu.index) for view in snapshot.plans for gpu in view.gpus if gpu.partitions]


@pytest.mark.parametrize(
    ("gpu_model", "profile", "fit"),
    [(H100, "1g.10gb", 7), (H100, "2g.20gb", 3), (A100, "1g.5gb", 7), (A30, "1g.6gb", 4)],
)
def test_pods_of_one_profile_fill_a_gpu_before_the_next(gpu_model: GpuModel, profile: str, fit: int) -> None:
    empty = cluster(server("node-1", *(mig(index, gpu_model=gpu_model) for index in range(4))))
    waiting = [pod(f"p{number}", profile, created=number) for number in range(fit + 1)]
    for count in range(1, fit + 1):
        assert len(touched(one_by_one(empty, *waiting[:count]))) == 1
    assert len(touched(one_by_one(empty, *waiting))) == 2


def test_slices_of_memory_fill_a_gpu_before_the_next() -> None:
    empty = cluster(server("node-1", *(mps(index) for index in range(4)), partitioning="mps"))
    waiting = [pod(f"p{number}", "10gb", created=number) for number in range(4)]
    for count in range(1, 4):
        assert len(touched(one_by_one(empty, *waiting[:count]))) == 1


def test_gpus_of_other_nodes_stay_whole() -> None:
    empty = cluster(*(server(f"node-{number}", mig(0, gpu_model=H100)) for number in range(4)))
    waiting = [pod(f"p{number}", "1g.10gb", created=number) for number in range(4)]
    assert len(touched(one_by_one(empty, *waiting))) == 1


def test_gpus_of_nodes_of_another_size_stay_whole() -> None:
    sizes = (64_000, 512), (192_000, 2_048)
    empty = cluster(
        *(
            server(f"node-{number}", mig(0, gpu_model=H100), cpu=cpu, memory_gib=memory)
            for number, (cpu, memory) in enumerate(sizes)
        )
    )
    waiting = [pod(f"p{number}", "1g.10gb", created=number) for number in range(4)]
    assert len(touched(one_by_one(empty, *waiting))) == 1


@pytest.mark.parametrize("used", [("1g.10gb", 6), ("2g.20gb", 4), ("3g.40gb", 4)])
@pytest.mark.parametrize("profile", ["1g.10gb", "2g.20gb"])
def test_whole_gpu_fits_after_one_more_small_pod(used: tuple[str, int], profile: str) -> None:
    gpus = mig(0, gpu_model=H100, used=[used]), mig(1, gpu_model=H100)
    half = cluster(server("node-1", *gpus), pods=[holder("node-1", used[0])])
    assert touched(one_by_one(half, pod("p", profile))) == [("node-1", 0)]


def test_pods_of_several_partitions_leave_gpus_whole() -> None:
    empty = cluster(server("node-1", *(mig(index, gpu_model=H100) for index in range(4))))
    waiting = [pod(f"p{number}", ("1g.10gb", 2), created=number) for number in range(3)]
    assert len(touched(one_by_one(empty, *waiting))) == 1
