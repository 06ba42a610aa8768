"""The simulated H100 against a real one: h100-580-readings.json was read on the card, through the same binding."""

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.driver.calls import gpu, nvml, placements
from tests.sandbox.driver.conftest import Simulate

RECORDED = json.loads(Path(__file__).with_name("h100-580-readings.json").read_text(encoding="utf-8"))


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


@pytest.mark.parametrize("reading", RECORDED["readings"], ids=lambda r: f"{r['call']} {r['arguments']}")
def test_a_reading_of_the_card(simulate: Simulate, reading: dict[str, Any]) -> None:
    simulate("H100-80GB")
    expected = {name: reading[name] for name in ("value", "code") if name in reading}
    assert answer(reading["call"], reading["arguments"], expected.get("value")) == expected


def test_the_texts_of_its_errors(simulate: Simulate) -> None:
    simulate("H100-80GB")
    known = {
        code: text for code, text in RECORDED["errors"].items() if nvml.nvmlErrorString(int(code)) != "Unknown Error"
    }
    assert {code: nvml.nvmlErrorString(int(code)) for code in known} == known
    assert len(known) >= 14
