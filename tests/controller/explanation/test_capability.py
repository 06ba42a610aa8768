"""Which partitions several empty GPUs could hold together: exact, and "never" only where it is proved."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.explanation.capability import could_hold
from controller.model.views import PlannerOptions
from controller.planner.inventory.eligibility import node_stock
from controller.planner.inventory.stock import NodeStock
from partitioning.layouts import EMPTY
from partitioning.packing import DoesNotFit, pack
from partitioning.resources import mig_resource, mps_resource_gb
from tests.builders.models import H100
from tests.controller.planner.builders import mig, mps, server
from tests.drawn import examples

PROFILES = ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb")


def stock(gpus: int, label: str = "mig") -> NodeStock:
    views = [(mps if label == "mps" else mig)(index, gpu_model=H100) for index in range(gpus)]
    node, plan = server("n", *views, partitioning=label)
    return node_stock(node, plan, (), PlannerOptions())


@pytest.mark.parametrize(
    ("gpus", "profiles", "fit"),
    [
        (2, {"2g.20gb": 4, "3g.40gb": 2}, True),
        (3, {"2g.20gb": 4, "3g.40gb": 4}, True),
        (2, {"2g.20gb": 5, "3g.40gb": 2}, False),
        (1, {"1g.10gb": 4, "3g.40gb": 1}, True),
        (1, {"1g.10gb": 5, "3g.40gb": 1}, False),
        (2, {"4g.40gb": 2, "3g.40gb": 2}, True),
        (2, {"4g.40gb": 2, "3g.40gb": 2, "1g.10gb": 1}, False),
        (1, {"7g.80gb": 1, "1g.10gb": 1}, False),
    ],
)
def test_profiles_together(gpus: int, profiles: dict[str, int], fit: bool) -> None:
    requested = tuple(sorted((mig_resource(name), count) for name, count in profiles.items()))
    assert could_hold(stock(gpus), requested) is fit


@pytest.mark.parametrize(
    ("gpus", "sizes", "fit"),
    [
        (2, {32: 2, 26: 4}, True),  # not both of 32 GB on one
        (2, {40: 2, 30: 2, 10: 1}, True),
        (2, {50: 3, 10: 1}, False),
        (1, {1: 40, 2: 10}, False),  # more clients than MPS serves
        (1, {1: 40, 2: 8}, True),
    ],
)
def test_slices_together(gpus: int, sizes: dict[int, int], fit: bool) -> None:
    requested = tuple(sorted((mps_resource_gb(size), count) for size, count in sizes.items()))
    assert could_hold(stock(gpus, "mps"), requested) is fit


@settings(max_examples=examples(100))
@given(st.dictionaries(st.sampled_from(PROFILES), st.integers(1, 4), min_size=2, max_size=3), st.integers(1, 2))
def test_exactly_what_some_division_among_gpus_holds(profiles: dict[str, int], gpus: int) -> None:
    requested = tuple(sorted((mig_resource(name), count) for name, count in profiles.items()))
    divisions = product(*(range(count + 1) for count in profiles.values())) if gpus == 2 else [(0,) * len(profiles)]

    def fits(counts: tuple[int, ...]) -> bool:
        one = dict(zip(profiles, counts, strict=True))
        return not isinstance(pack(H100, pinned=EMPTY, requested=one), DoesNotFit)

    rest = [tuple(most - one for most, one in zip(profiles.values(), part, strict=True)) for part in divisions]
    parts = [(tuple(most - one for most, one in zip(profiles.values(), left, strict=True)), left) for left in rest]
    assert could_hold(stock(gpus), requested) is any(fits(part) and fits(left) for part, left in parts)


@pytest.mark.parametrize("label", ["mig", "mps"])
def test_many_sizes_cost_little_and_never_is_not_said_unproved(label: str) -> None:
    few = tuple(sorted((mps_resource_gb(size), 1) for size in range(1, 12)))
    assert could_hold(stock(8, label), few)
    many = tuple(sorted((mps_resource_gb(size), 1) for size in range(1, 31)))  # 465 GB of 8 GPUs
    assert could_hold(stock(8, label), many)
    more = tuple(sorted((mps_resource_gb(size), 3) for size in range(1, 31)))  # twice what 8 GPUs have
    assert not could_hold(stock(8, label), more)
