"""Effective items and their hashes, and reading objects of newer versions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from crds.v1alpha1.plan import GPUPartitionPlan, effective_items, item_hash


def read(spec: dict[str, Any], **more: Any) -> GPUPartitionPlan:
    return GPUPartitionPlan.read({"metadata": {"name": "n"}, "spec": {"nodeName": "n", **spec}, **more})


WHOLE = {"index": 0, "whole": {}}
CUT = {"index": 0, "mig": {"instances": [{"profile": "1g.10gb", "start": 0}]}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, {}, id="unmanaged"),
        pytest.param({"planned": {"gpus": [CUT]}}, {0: CUT}, id="planned"),
        pytest.param({"gpus": [WHOLE]}, {0: WHOLE}, id="pinned"),
        pytest.param({"gpus": [WHOLE], "planned": {"gpus": [CUT]}}, {0: WHOLE}, id="pinned-wins"),
        pytest.param(
            {"gpus": [{"index": 3, "whole": {}}], "planned": {"gpus": [CUT]}},
            {0: CUT, 3: {"index": 3, "whole": {}}},
            id="both",
        ),
    ],
)
def test_effective_items(spec: dict[str, Any], expected: dict[int, Any]) -> None:
    assert {index: item.wire() for index, item in effective_items(read(spec).spec).items()} == expected


def item(index: int, uuid: str = "") -> dict[str, Any]:
    return {"index": index, **({"uuid": uuid} if uuid else {}), "whole": {}}


A, B, C, D = "GPU-a", "GPU-b", "GPU-c", "GPU-d"


@pytest.mark.parametrize(
    ("pinned", "planned", "cards", "expected"),
    [
        pytest.param([item(0, A), item(1, B)], [], [B, A], {0: item(1, B), 1: item(0, A)}, id="exchanged"),
        pytest.param([], [item(1, B), item(2, C)], [B, C], {0: item(1, B), 1: item(2, C)}, id="the first is gone"),
        pytest.param([], [item(0, A), item(1, B)], [B], {0: item(1, B), 1: item(0, A)}, id="gone fails elsewhere"),
        pytest.param([item(0, A)], [item(1, B)], [B], {0: item(1, B), 1: item(0, A)}, id="gone, also where pinned"),
        pytest.param([item(0, A)], [], [D], {0: item(0, A)}, id="replaced: fails at its index"),
        pytest.param([item(0, A)], [item(0, D)], [D], {0: item(0, D), 1: item(0, A)}, id="replaced and planned"),
        pytest.param([item(0, A)], [item(0)], [D], {0: item(0, A)}, id="planned without a uuid, pinned with one"),
        pytest.param([item(0, A)], [item(1, A)], [B, A], {1: item(0, A)}, id="two for one card: the pinned one"),
        pytest.param([item(1)], [item(0, A)], [B, A], {1: item(1)}, id="the pinned one has an index only"),
        pytest.param(
            [item(0), item(1, A)], [], [A], {0: item(1, A), 1: item(0)}, id="one without a uuid is in its way"
        ),
        pytest.param([item(0, A), item(1, A)], [], [A, B], {0: item(0, A), 1: item(1, A)}, id="one uuid twice"),
        pytest.param([], [item(0, A), item(1)], [B, C], {0: item(0, A), 1: item(1)}, id="mixed"),
        pytest.param([item(0, A)], [], ["", A], {1: item(0, A)}, id="a GPU that cannot be read"),
        pytest.param(
            [item(0, A), item(2)],
            [item(0), item(1, B)],
            [],
            {0: item(0, A), 1: item(1, B), 2: item(2)},
            id="cards not known",
        ),
    ],
)
def test_an_item_with_a_uuid_follows_its_card(
    pinned: list[dict[str, Any]], planned: list[dict[str, Any]], cards: list[str], expected: dict[int, Any]
) -> None:
    spec = read({"gpus": pinned, "planned": {"gpus": planned}}).spec

    found = effective_items(spec, dict(enumerate(cards)))

    assert {index: item.wire() for index, item in found.items()} == expected


UUIDS = st.sampled_from(["", A, B, C, D])
LISTS = st.dictionaries(st.integers(0, 4), UUIDS, max_size=5).map(
    lambda uuids: [item(index, uuid) for index, uuid in sorted(uuids.items())]
)


@given(pinned=LISTS, planned=LISTS, order=st.permutations([A, B, C, ""]), count=st.integers(0, 4))
def test_no_item_reaches_another_card_than_its_own(
    pinned: list[dict[str, Any]], planned: list[dict[str, Any]], order: list[str], count: int
) -> None:
    cards = dict(enumerate(order[:count]))
    found = effective_items(read({"gpus": pinned, "planned": {"gpus": planned}}).spec, cards)

    for index, uuid in cards.items():
        if (one := found.get(index)) is not None:
            assert one.uuid in (None, uuid) or one.index == index, "else the agent refuses it as GPUMismatch"
            assert one.uuid is not None or one.index == index
    at = {uuid: index for index, uuid in cards.items() if uuid}
    for wire in pinned:
        assert any(one.wire() == wire for one in found.values()), "no pinned item is lost without a word"
        if wire.get("uuid") in at and sum(other.get("uuid") == wire["uuid"] for other in pinned) == 1:
            assert found[at[wire["uuid"]]].wire() == wire


def test_the_hash_is_of_the_content_alone() -> None:
    pinned = effective_items(read({"gpus": [CUT]}).spec)[0]
    planned = effective_items(read({"planned": {"gpus": [CUT]}}).spec)[0]

    assert item_hash(pinned) == item_hash(planned) == item_hash(CUT)
    assert item_hash(pinned) != item_hash(WHOLE)
    assert len(item_hash(WHOLE)) == 12


def test_fields_of_a_newer_version_are_ignored_on_reading() -> None:
    plan = read({"someday": 1}, status={"gpus": [{"index": 0, "state": "Ready", "someday": True}]})

    assert plan.status is not None
    assert plan.status.wire() == {"gpus": [{"index": 0, "state": "Ready"}]}


def test_capital_units_on_the_wire() -> None:
    spec = {"gpus": [{"index": 0, "mps": {"slices": [{"memoryGB": 10, "threadPercent": 50}, {"memoryGiB": 3}]}}]}

    assert read(spec).spec.wire() == {"nodeName": "n", **spec}


def test_a_wrong_type_names_the_field() -> None:
    with pytest.raises(ValidationError, match=r"spec\.gpus\.0\.index"):
        read({"gpus": [{"index": "x", "whole": {}}]})
