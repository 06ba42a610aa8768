"""GPU instances of a machine's state: their ids, and what excludes another."""

import pytest

from sandbox.driver import machine
from sandbox.driver.boards import board_of
from sandbox.driver.gpu_instances import create_gpu_instance
from sandbox.driver.state import GpuState, Machine
from sandbox.driver.status import Refused, Status
from tests.builders.models import MODELS


def one_gpu(key: str) -> tuple[Machine, GpuState]:
    state = machine.create_state([(MODELS[key], {"mig_enabled": True})], "ids")
    return state, state["gpus"][0]


def test_ids_number_halves_quarters_and_eighths() -> None:
    state, gpu = one_gpu("A100-40GB")
    made = [create_gpu_instance(state, gpu, *wanted)["id"] for wanted in ((5, (0, 4)), (14, (4, 2)), (19, (6, 1)))]

    assert made == [1, 5, 13]


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
    spec = board_of(gpu).by_id(profile_id)
    assert spec is not None
    created = [create_gpu_instance(state, gpu, profile_id, (start, spec.size))["id"] for start in spec.starts]
    assert created == ids


def test_one_media_instance_at_most() -> None:
    state, gpu = one_gpu("H100-80GB")
    create_gpu_instance(state, gpu, 20, (0, 1))
    with pytest.raises(Refused) as caught:
        create_gpu_instance(state, gpu, 20, (1, 1))
    assert caught.value.status == Status.INSUFFICIENT_RESOURCES
