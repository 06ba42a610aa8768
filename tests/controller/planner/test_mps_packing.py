"""Slices of memory on few GPUs: as many pods are placed as there can be, or one fewer, by brute force."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.model.snapshot import Snapshot
from controller.model.views import GpuView
from controller.planning import plan
from partitioning.models import GpuModel
from partitioning.mps import MAX_CLIENTS, RESERVE_MIB, shareable_mib, slice_of_gb
from tests.builders.models import A30, A100, T4
from tests.controller.planner.builders import cluster, holder, mps, pod, server
from tests.controller.planner.checker import check
from tests.drawn import examples

MODELS = {"A30": A30, "A100": A100, "T4": T4}
SIZES_GB = (1, 2, 3, 5, 7, 8, 10, 12, 20)
Filling = tuple[int, ...]


def sharing_all(model: GpuModel) -> GpuModel:
    """The same with the memory that is kept for driver and MPS server in addition."""
    return replace(model, memory_mib=model.memory_mib + RESERVE_MIB)


def fillings(free_mib: int, clients: int, requested: list[tuple[int, int]]) -> set[Filling]:
    """Every way to put at most so many slices of each size (GB, pods) on one GPU."""
    if not requested:
        return {()}
    (size, pods), rest = requested[0], requested[1:]
    size_mib = slice_of_gb(size).memory_mib
    return {
        (count, *others)
        for count in range(min(pods, clients, free_mib // size_mib) + 1)
        for others in fillings(free_mib - count * size_mib, clients - count, rest)
    }


def most(gpus: list[GpuView], sizes: list[int]) -> int:
    """How many pods of these sizes can have a slice, one each."""
    requested = sorted(Counter(sizes).items())
    reached: set[Filling] = {(0,) * len(requested)}
    for gpu in gpus:
        assert gpu.model is not None
        used = [part.memory_mib for part in gpu.partitions if part.used]
        ways = fillings(shareable_mib(gpu.model.memory_mib) - sum(used), MAX_CLIENTS - len(used), requested)
        reached = {
            tuple(min(pods, had + more) for (_, pods), had, more in zip(requested, before, way, strict=True))
            for before in reached
            for way in ways
        }
    return max(sum(served) for served in reached)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Snapshot, list[int]]:
    """At most three GPUs on one or two nodes and sixteen pods of at most three sizes."""
    known = draw(st.lists(st.sampled_from(SIZES_GB), min_size=1, max_size=3, unique=True))
    servers, running = [], []
    for number in range(draw(st.integers(1, 2))):
        node = f"node-{number}"
        gpus = []
        for index in range(draw(st.integers(1, 2 - number))):
            model = MODELS[draw(st.sampled_from(sorted(MODELS)))]
            free_mib = shareable_mib(model.memory_mib)
            used: list[int] = []
            idle: list[int] = []
            for size in draw(st.lists(st.sampled_from(known), max_size=6)):
                if slice_of_gb(size).memory_mib <= free_mib:
                    free_mib -= slice_of_gb(size).memory_mib
                    (used if draw(st.booleans()) else idle).append(size)
            gpus.append(mps(index, gpu_model=model, used_gb=used, idle_gb=idle))
        held = Counter(part.resource for gpu in gpus for part in gpu.partitions if part.used)
        if held:
            running.append(holder(node, *sorted(held.items())))
        servers.append(server(node, *gpus, partitioning="mps"))
    sizes = draw(st.lists(st.sampled_from(known), min_size=1, max_size=16))
    pending = [pod(f"p{number}", f"{size}gb", created=number) for number, size in enumerate(sizes)]
    return cluster(*servers, pods=running, pending=pending), sizes


@settings(max_examples=examples(300))
@given(clusters())
def test_at_most_one_pod_fewer_than_possible_is_placed(drawn: tuple[Snapshot, list[int]]) -> None:
    """The planner is a heuristic: in about one of 2,000 such clusters it places one pod fewer than it could."""
    snapshot, sizes = drawn
    result = plan(snapshot)

    check(snapshot, result)
    possible = most([gpu for found in snapshot.plans for gpu in found.gpus], sizes)
    assert possible - 1 <= len(result.placed) <= possible <= result.bound


@pytest.mark.parametrize(
    ("gpus", "sizes", "placed"),
    [
        pytest.param(
            # 19,981 and 16,166 MiB are free.
            [
                mps(0, gpu_model=sharing_all(A100), used_gb=[20, 2]),
                mps(1, gpu_model=sharing_all(A100), used_gb=[24, 2]),
            ],
            [2] * 8 + [5] * 4,
            12,
            id="both sizes fill both GPUs",
        ),
        pytest.param(
            [mps(0, gpu_model=sharing_all(T4)), mps(1, gpu_model=sharing_all(A100))],
            [8] * 2 + [10] * 4,
            6,
            id="two of eight fill what one of ten spoils",
        ),
        pytest.param([mps(0, gpu_model=sharing_all(A30))], [1] * 60, 25, id="by memory"),
    ],
)
def test_sizes_are_combined_so_that_nothing_is_left(gpus: list[GpuView], sizes: list[int], placed: int) -> None:
    held = Counter(part.resource for gpu in gpus for part in gpu.partitions if part.used)
    pending = [pod(f"p{number}", f"{size}gb", created=number) for number, size in enumerate(sizes)]
    running = [holder("node-1", *sorted(held.items()))] if held else []
    snapshot = cluster(server("node-1", *gpus, partitioning="mps"), pods=running, pending=pending)

    assert len(plan(snapshot).placed) == most(gpus, sizes) == placed
