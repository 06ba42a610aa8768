"""The place the driver chooses, against what real drivers chose, and the remaining capacity against a transcript."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from partitioning.models import known_models
from sandbox.driver import machine
from sandbox.driver.boards import board_of
from sandbox.driver.gpu_instances import create_gpu_instance, remaining_capacity
from sandbox.driver.state import GpuState, MachineState
from sandbox.driver.status import Refused, Status

CAPTURES = json.loads(Path(__file__).with_name("placement_captures.json").read_text())["captures"]


def one_gpu(key: str, *, halves_swapped: bool = False) -> tuple[MachineState, GpuState]:
    model = next(model for model in known_models() if model.key == key)
    state = machine.create_state([(model, {"mig_enabled": True, "halves_swapped": halves_swapped})], "captures")
    return state, state["gpus"][0]


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda capture: f"{capture['model']} {capture['profiles']}")
def test_the_driver_chooses_as_real_drivers_did(capture: dict[str, Any]) -> None:
    state, gpu = one_gpu(capture["model"], halves_swapped=capture["halves_swapped"])
    chosen: list[int | None] = []
    for profile_id in capture["profiles"]:
        try:
            chosen.append(create_gpu_instance(state, gpu, profile_id)["id"])
        except Refused as refusal:
            chosen.append(None if refusal.status == Status.INSUFFICIENT_RESOURCES else -int(refusal.status))
    assert chosen == capture["ids"], capture["source"]


def test_remaining_capacity_as_in_a_transcript() -> None:
    """A100-SXM4-40GB, driver 580.126.09 (ssup2 blog): free counts after 4g, 2g and 1g were created."""
    state, gpu = one_gpu("A100-40GB", halves_swapped=True)
    board = board_of(gpu)

    def free() -> list[int]:
        specs = [board.by_id(profile_id) for profile_id in (19, 20, 15, 14, 9, 5, 0)]
        return [remaining_capacity(gpu, board, spec) for spec in specs if spec is not None]

    assert free() == [7, 1, 4, 3, 2, 1, 1]
    steps = [(5, 2, [3, 1, 2, 1, 1, 0, 0]), (14, 3, [1, 1, 1, 0, 0, 0, 0]), (19, 9, [0] * 7)]
    for profile_id, chosen, counts in steps:
        assert create_gpu_instance(state, gpu, profile_id)["id"] == chosen
        assert free() == counts


@pytest.mark.parametrize(
    ("key", "profile_id", "ids"),
    [
        ("A30-24GB", 14, [3, 4, 5, 6]),  # quarters of four slots
        ("A30-24GB", 5, [1, 2]),
        ("RTX-PRO-6000-BLACKWELL-96GB", 14, [3, 4, 5, 6]),  # quarters of twelve slots
        ("A100-40GB", 0, [0]),
    ],
)
def test_instance_ids_of_other_widths(key: str, profile_id: int, ids: list[int]) -> None:
    state, gpu = one_gpu(key)
    created = [create_gpu_instance(state, gpu, profile_id)["id"] for _ in ids]
    assert sorted(created) == ids


def test_one_media_instance_at_most() -> None:
    state, gpu = one_gpu("H100-80GB")
    create_gpu_instance(state, gpu, 20)
    with pytest.raises(Refused) as caught:
        create_gpu_instance(state, gpu, 20)
    assert caught.value.status == Status.INSUFFICIENT_RESOURCES
