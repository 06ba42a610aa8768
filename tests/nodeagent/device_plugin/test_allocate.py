"""The kubelet is steered towards GPUs that are begun already, and mergeable slices of one GPU become one."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.device_plugin.allocate import container_answer, preferred
from nodeagent.handover.config import DeviceListStrategy
from tests.nodeagent.device_plugin.devices import GPU_B, unit

ROOT = Path("/run/gpuplan/mps")
PIPE = "/run/gpuplan/mps/GPU-bbbbbbbb-/pipe"

GPU_OF = {"a1": "A", "a2": "A", "a3": "A", "b1": "B", "b2": "B", "c1": "C"}

CASES = [
    ("the GPU with the fewest left", ["a1", "a2", "b1"], [], 1, ("b1",)),
    ("a whole fit before two GPUs", ["a1", "a2", "a3", "b1", "c1"], [], 2, ("a1", "a2")),
    ("the tightest whole fit", ["a1", "a2", "a3", "b1", "b2"], [], 2, ("b1", "b2")),
    ("few GPUs where none is enough", ["a1", "a2", "b1", "c1"], [], 3, ("a1", "a2", "b1")),
    ("alongside what is required", ["a1", "a2", "a3", "c1"], ["a2"], 2, ("a2", "a1")),
    ("ids no longer offered are left out", ["x", "b1"], [], 1, ("b1",)),
    ("fewer than asked for, if there are no more", ["x", "b1"], [], 2, ("b1",)),
    ("no more than asked for", ["a1", "a2"], ["a1"], 1, ("a1",)),
]


@pytest.mark.parametrize(
    ("available", "required", "size", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_cases(available: list[str], required: list[str], size: int, expected: tuple[str, ...]) -> None:
    assert preferred(available, required, size, GPU_OF) == expected


@pytest.mark.parametrize(
    ("available", "required", "size", "recorded", "expected"),
    [
        (["a1", "a2", "a3"], [], 1, {"a1"}, ("a2",)),
        (["a1", "a2", "b1"], [], 1, {"b1"}, ("a1",)),
        (["b1"], [], 1, {"b1"}, ("b1",)),
        (["a1", "a2", "b1", "c1"], [], 2, {"a1"}, ("a2", "a1")),  # on one GPU: two could not be merged
        (["a1", "a2", "b1"], ["b2"], 2, {"b1"}, ("b2", "b1")),
    ],
)
def test_what_was_not_seen_free_since_it_was_handed_out_comes_last(
    available: list[str], required: list[str], size: int, recorded: set[str], expected: tuple[str, ...]
) -> None:
    assert preferred(available, required, size, GPU_OF, recorded) == expected


@given(st.sets(st.sampled_from(sorted(GPU_OF))), st.integers(0, 7), st.randoms())
def test_an_answer_is_a_choice_from_what_is_there_in_any_order(available: set[str], size: int, order: object) -> None:
    required = sorted(available)[: size // 2]
    shuffled = list(available)
    order.shuffle(shuffled)  # type: ignore[attr-defined] # hypothesis' Random
    chosen = preferred(shuffled, required, size, GPU_OF)
    assert chosen == preferred(sorted(available), required, size, GPU_OF)
    assert set(required) <= set(chosen) <= available
    assert len(chosen) == len(set(chosen)) == min(size, len(available))


@pytest.mark.parametrize(("count", "memory", "percent"), [(1, "0=20389M", "25"), (3, "0=61167M", "75")])
@pytest.mark.parametrize("strategy", list(DeviceListStrategy))
def test_mergeable_slices_are_one_slice_of_their_sum(
    count: int, memory: str, percent: str, strategy: DeviceListStrategy
) -> None:
    answer = container_answer([unit(number) for number in range(count)], ROOT, strategy)
    assert {
        "CUDA_MPS_PIPE_DIRECTORY": PIPE,
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": memory,
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": percent,
    }.items() <= dict(answer.envs).items()
    names = [device.name for device in answer.cdi_devices]
    assert names == ([f"gpuplan.dev/gpu={GPU_B}::0"] if strategy is DeviceListStrategy.CDI_CRI else [])
    assert len(answer.mounts) == (0 if names else 1)
