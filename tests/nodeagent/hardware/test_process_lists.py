"""Lists of processes in one call: drivers of 530 write larger entries than others, and never past our array."""

import ctypes
from typing import Any

import pynvml
import pytest

from nodeagent.hardware.nvml_calls import ROOM, processes


class LargeEntry(ctypes.Structure):
    """Of driver 530: nvmlProcessInfo_t with usedGpuCcProtectedMemory."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("usedGpuMemory", ctypes.c_ulonglong),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
        ("usedGpuCcProtectedMemory", ctypes.c_ulonglong),
    )


def driver(count: int, entry: Any, past: list[int]) -> Any:
    """A driver with so many processes; `past` gets how many bytes of its answer the array has no room for."""

    def call(_device: object, room: Any, array: Any) -> int:
        fits = count <= room._obj.value
        room._obj.value = count
        if not fits:
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        found = (entry * count)(*(entry(pid=1000 + number) for number in range(count)))
        past.append(max(0, ctypes.sizeof(found) - ctypes.sizeof(array)))
        ctypes.memmove(array, found, min(ctypes.sizeof(found), ctypes.sizeof(array)))
        return 0

    return call


@pytest.mark.parametrize("count", [0, 1, 2, 192, 193, ROOM, ROOM + 1, 1000])
@pytest.mark.parametrize("entry", [pynvml.c_nvmlProcessInfo_v3_t, LargeEntry], ids=["usual", "large"])
def test_no_driver_writes_past_the_array(count: int, entry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    past: list[int] = []
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer", lambda _name: driver(count, entry, past))
    found = processes(pynvml.nvmlDeviceGetComputeRunningProcesses, object())

    assert set(past) <= {0}
    assert bool(found) is bool(count)
    if entry is not LargeEntry:
        assert found == set(range(1000, 1000 + count))
