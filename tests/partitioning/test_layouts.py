"""Layouts as values, and the rule which of them can exist."""

import pytest

from partitioning.layouts import (
    EMPTY,
    Instance,
    Layout,
    check_layout,
    check_together,
    instance_at,
    with_model_names,
)
from partitioning.models import GpuModel
from tests.builders.models import A100, MODELS


def at(profile: str, start: int, size: int = 1) -> Instance:
    return Instance(start=start, size=size, profile=profile)


def test_a_layout_is_sorted_and_equal_whatever_the_order() -> None:
    one, other = at("2g.10gb", 4, 2), at("1g.5gb", 0)
    assert Layout.of([one, other]) == Layout.of([other, one])
    assert list(Layout.of([one, other])) == [other, one]
    assert str(Layout.of([one, other])) == "1g.5gb at 0, 2g.10gb at 4"
    assert str(EMPTY) == "empty"


def test_masks_counts_and_membership() -> None:
    layout = Layout.of([at("2g.10gb", 4, 2), at("1g.5gb", 0), at("1g.5gb", 6)])
    assert layout.mask == 0b1110001
    assert list(layout.counts().items()) == [("1g.5gb", 2), ("2g.10gb", 1)]
    assert at("1g.5gb", 6) in layout
    assert at("1g.5gb", 5) not in layout
    assert len(layout) == 3


def test_without_and_union_are_set_operations() -> None:
    layout = Layout.of([at("1g.5gb", 0), at("1g.5gb", 1)])
    assert layout.without([at("1g.5gb", 0), at("1g.5gb", 6)]) == Layout.of([at("1g.5gb", 1)])
    assert layout.union(layout) == layout
    assert layout.without(layout).union([at("1g.5gb", 3)]) == Layout.of([at("1g.5gb", 3)])


@pytest.mark.parametrize(
    ("key", "profile", "start", "expected"),
    [
        ("A100-40GB", "3g.20gb", 4, at("3g.20gb", 4, 4)),
        ("A100-40GB", "3g.20gb", 2, None),
        ("A100-40GB", "3g.40gb", 0, None),
        ("A100-80GB", "7g.79gb", 0, at("7g.80gb", 0, 8)),
        ("RTX-PRO-6000-BLACKWELL-96GB", "2g.48gb", 6, at("2g.48gb", 6, 6)),
        ("RTX-PRO-5000-BLACKWELL-48GB", "1g.24gb", 0, None),
        ("T4", "1g.5gb", 0, None),
    ],
)
def test_an_instance_is_placed_only_where_the_model_has_a_placement(
    key: str, profile: str, start: int, expected: Instance | None
) -> None:
    assert instance_at(MODELS[key], profile, start) == expected


def test_aliases_are_written_as_the_model_names_them_and_strangers_are_left_alone() -> None:
    layout = Layout.of([at("7g.79gb", 0, 8), at("9g.1gb", 0)])
    assert with_model_names(MODELS["A100-80GB"], layout) == Layout.of([at("7g.80gb", 0, 8), at("9g.1gb", 0)])


@pytest.mark.parametrize(
    ("model", "instances"),
    [
        (A100, []),
        (A100, [at("1g.5gb", start) for start in range(7)]),
        (A100, [at("4g.20gb", 0, 4), at("3g.20gb", 4, 4)]),
        (A100, [at("3g.20gb", 0, 4), at("2g.10gb", 4, 2), at("1g.10gb", 6, 2)]),
        (A100, [at("1g.5gb+me", 0), at("1g.5gb", 1)]),
        (MODELS["A30-24GB"], [at("2g.12gb+me", 0, 2), at("2g.12gb", 2, 2)]),
        (MODELS["A100-80GB"], [at("7g.79gb", 0, 8)]),
        (
            MODELS["RTX-PRO-6000-BLACKWELL-96GB"],
            [at("1g.24gb+me.all", 0, 3), at("1g.24gb-me", 3, 3), at("2g.48gb-me", 6, 6)],
        ),
    ],
)
def test_a_possible_layout_is_let_pass(model: GpuModel, instances: list[Instance]) -> None:
    assert check_layout(model, Layout.of(instances)) is None


@pytest.mark.parametrize(
    ("model", "instances", "words"),
    [
        (A100, [at("1g.10gb+me", 0)], ["A100-40GB has no profile 1g.10gb+me", "1g.5gb, 1g.5gb+me"]),
        (A100, [at("3g.20gb", 2, 4)], ["3g.20gb cannot begin at 2", "use 0 or 4"]),
        (A100, [at("4g.20gb", 4, 4)], ["4g.20gb cannot begin at 4", "use 0"]),
        (A100, [at("1g.5gb", 7)], ["1g.5gb cannot begin at 7", "5 or 6"]),
        (A100, [at("3g.20gb", 0, 3)], ["covers 4 memory slices", "not 3"]),
        (A100, [at("4g.20gb", 0, 4), at("1g.5gb", 3)], ["4g.20gb at 0 and 1g.5gb at 3 overlap"]),
        (A100, [at("1g.5gb", 3), at("1g.5gb", 3)], ["overlap"]),
        (A100, [at("1g.5gb+me", 0), at("1g.5gb+me", 5)], ["exclude each other", "media engines"]),
        (MODELS["A30-24GB"], [at("1g.6gb+me", 0), at("2g.12gb+me", 2, 2)], ["exclude each other"]),
        (
            MODELS["RTX-PRO-6000-BLACKWELL-96GB"],
            [at("1g.24gb+me.all", 0, 3), at("1g.24gb", 3, 3)],
            ["exclude each other"],
        ),
        (MODELS["RTX-PRO-5000-BLACKWELL-48GB"], [at("1g.24gb", 0, 1)], ["not published", "NVML"]),
        (MODELS["T4"], [at("1g.5gb", 0)], ["T4 has no MIG", "use MPS slices"]),
    ],
)
def test_an_impossible_layout_is_reported_in_one_sentence(
    model: GpuModel, instances: list[Instance], words: list[str]
) -> None:
    sentence = check_layout(model, Layout.of(instances))
    assert sentence is not None
    for word in words:
        assert word in sentence


def test_foreign_instances_are_checked_for_overlap_only_on_request() -> None:
    assert check_together(A100, Layout.of([at("9g.1gb", 0, 2), at("1g.5gb", 2)])) is None
    assert check_together(A100, Layout.of([at("9g.1gb", 0, 2), at("1g.5gb", 1)])) is not None
