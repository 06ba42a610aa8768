"""MPS slices: exact limits, and sentences for what one GPU cannot hold."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitioning.mps import (
    RESERVE_MIB,
    MpsSlice,
    check_replicas,
    check_slices,
    client_limit,
    in_order,
    replicas_of,
    slice_of_gb,
    units_of_gib,
)

AMPERE = (8, 0)


@pytest.mark.parametrize(("memory_gb", "memory_mib"), [(1, 953), (5, 4768), (10, 9536), (20, 19073), (80, 76293)])
def test_gigabytes_are_decimal_and_rounded_down_to_whole_mib(memory_gb: int, memory_mib: int) -> None:
    share = slice_of_gb(memory_gb)
    assert share.memory_mib == memory_mib
    assert (share.resource, share.label, share.mergeable) == (f"nvidia.com/gpu-{memory_gb}gb", f"{memory_gb}gb", False)


def test_gibibytes_are_binary_units_that_add_up() -> None:
    units = units_of_gib(3)
    assert [(unit.memory_mib, unit.label, unit.mergeable) for unit in units] == [(1024, "1gib", True)] * 3
    assert {unit.resource for unit in units} == {"aliyun.com/gpu-mem"}


@pytest.mark.parametrize(
    ("memory_mib", "capability", "slices"),
    [
        (24258, AMPERE, []),
        (16280, (6, 0), []),
        (24258, AMPERE, [slice_of_gb(10), slice_of_gb(10), *units_of_gib(4)]),
        (81559, AMPERE, units_of_gib(79)),
        (24258, (7, 0), [slice_of_gb(10, 100), slice_of_gb(10, 100)]),
        (48 * 953 + RESERVE_MIB, AMPERE, [slice_of_gb(1)] * 48),
        (9536 + RESERVE_MIB, AMPERE, [slice_of_gb(10)]),
    ],
)
def test_what_fits_is_let_pass(memory_mib: int, capability: tuple[int, int], slices: list[MpsSlice]) -> None:
    assert check_slices(memory_mib, capability, slices) is None


@pytest.mark.parametrize(
    ("memory_mib", "capability", "slices", "words"),
    [
        (16280, (6, 1), [slice_of_gb(1)], ["Volta", "6.1", "whole: {}"]),
        (16280, (0, 0), [slice_of_gb(1)], ["Volta", "unknown"]),
        (81559, AMPERE, [slice_of_gb(1)] * 50, ["mps.slices", "50 slices", "48 clients", "lower count by 2"]),
        (
            24258,
            AMPERE,
            [slice_of_gb(10)] * 3,
            ["28608 MiB", "23618 MiB", "24258", "Lower memoryGB", "by 6 GB (4990 MiB)"],
        ),
        (9535 + RESERVE_MIB, AMPERE, [slice_of_gb(10)], ["Lower memoryGB", "by 1 GB (1 MiB)"]),
        (81559, AMPERE, units_of_gib(80), ["81920 MiB", "80919 MiB"]),
    ],
)
def test_what_does_not_fit_is_reported_with_field_and_remedy(
    memory_mib: int, capability: tuple[int, int], slices: Sequence[MpsSlice], words: list[str]
) -> None:
    sentence = check_slices(memory_mib, capability, slices)
    assert sentence is not None
    for word in words:
        assert word in sentence


@given(st.lists(st.integers(1, 100).map(slice_of_gb), max_size=60), st.integers(1, 400_000))
def test_slices_that_pass_never_need_more_than_the_gpu_has(slices: list[MpsSlice], memory_mib: int) -> None:
    fits = len(slices) <= 48 and sum(share.memory_mib for share in slices) <= max(0, memory_mib - RESERVE_MIB)
    assert (check_slices(memory_mib, AMPERE, slices) is None) is fits


@given(st.permutations([slice_of_gb(10), slice_of_gb(5), slice_of_gb(5, 20), *units_of_gib(1), slice_of_gb(10, 7)]))
def test_equal_sets_have_one_order(slices: list[MpsSlice]) -> None:
    assert [(share.memory_mib, share.resource, share.thread_percent) for share in in_order(slices)] == [
        (1024, "aliyun.com/gpu-mem", None),
        (4768, "nvidia.com/gpu-5gb", None),
        (4768, "nvidia.com/gpu-5gb", 20),
        (9536, "nvidia.com/gpu-10gb", None),
        (9536, "nvidia.com/gpu-10gb", 7),
    ]


@pytest.mark.parametrize(
    ("replicas", "memory_mib", "percent"),
    [(2, 40779, 50), (3, 27186, 33), (4, 20389, 25), (7, 11651, 14), (10, 8155, 10), (48, 1699, 2)],
)
def test_replicas_have_the_limits_that_nvidias_plugin_sets(replicas: int, memory_mib: int, percent: int) -> None:
    shares = replicas_of(81559, replicas)
    assert len(shares) == replicas
    assert {(share.memory_mib, share.thread_percent, share.resource) for share in shares} == {
        (memory_mib, percent, "nvidia.com/gpu.shared")
    }
    assert replicas_of(81559, replicas, renamed=False)[0].resource == "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("capability", "driver", "limit"),
    [
        ((6, 1), "580.65.06", 16),
        ((6, 1), "590.44.01", 16),
        ((0, 0), "590.44.01", 16),
        ((7, 0), "535.161.08", 48),
        ((7, 0), "", 48),
        ((9, 0), "580.95.05", 48),
        ((9, 0), "590.44.01", 60),
        ((9, 0), "unreadable", 48),
    ],
)
def test_clients_per_gpu(capability: tuple[int, int], driver: str, limit: int) -> None:
    assert client_limit(capability, driver) == limit
    assert check_replicas(capability, limit, driver) is None
    sentence = check_replicas(capability, limit + 1, driver)
    assert sentence is not None
    assert f"mps.replicas is {limit + 1}, and MPS serves {limit} clients" in sentence
    assert sentence.endswith(f"write {limit} or less")
