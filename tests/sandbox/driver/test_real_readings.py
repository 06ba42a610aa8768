"""Simulated GPUs against real ones: each file of readings was read on a card, through the same binding."""

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.driver.calls import gpu, nvml, placements
from tests.sandbox.driver.conftest import Simulate

RECORDED = {
    model: json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    for model, name in {"H100-80GB": "h100-580-readings.json", "H200-141GB": "h200-580-readings.json"}.items()
}


def instances(device: Any, profile_id: int, *, null: bool = False) -> int:
    count = ctypes.c_uint(8)
    array = None if null else (nvml.c_nvmlGpuInstance_t * 8)()
    nvml.nvmlDeviceGetGpuInstances(device, profile_id, array, ctypes.byref(count))
    return count.value


RAW_CALLS: dict[str, Callable[..., Any]] = {
    "placements": lambda device, profile: [list(place) for place in placements(device, profile)],
    "instances": instances,
    "instances of null": lambda device, profile: instances(device, profile, null=True),
}


def answer(call: str, arguments: list[int], expected: object) -> dict[str, Any]:
    function = RAW_CALLS.get(call) or getattr(nvml, call)
    try:
        value = function(gpu(), *arguments)
    except nvml.NVMLError as error:
        return {"code": error.value}
    if isinstance(expected, dict):
        return {"value": {name: getattr(value, name) for name in expected}}
    if isinstance(value, ctypes.c_uint):
        return {"value": value.value}
    return {"value": list(value) if isinstance(value, tuple) else value}


@pytest.mark.parametrize(
    ("model", "reading"),
    [(model, reading) for model, found in RECORDED.items() for reading in found["readings"]],
    ids=lambda value: value if isinstance(value, str) else f"{value['call']} {value['arguments']}",
)
def test_a_reading_of_the_card(simulate: Simulate, model: str, reading: dict[str, Any]) -> None:
    simulate(model)
    expected = {name: reading[name] for name in ("value", "code") if name in reading}
    assert answer(reading["call"], reading["arguments"], expected.get("value")) == expected


@pytest.mark.parametrize("model", RECORDED)
def test_the_texts_of_its_errors(simulate: Simulate, model: str) -> None:
    simulate(model)
    errors = RECORDED[model]["errors"]
    known = {code: text for code, text in errors.items() if nvml.nvmlErrorString(int(code)) != "Unknown Error"}
    assert {code: nvml.nvmlErrorString(int(code)) for code in known} == known
    assert len(known) >= 14
