"""Writes what the driver answers to each question that the agent asks, so that a card can be looked at elsewhere.

Stands where the binding looks up the driver's functions, lets the agent's own reader read every GPU, and writes a line
of JSON for each question as soon as it is answered, errors included; the simulated driver replays them. A question that
is asked again is written once. Handles are numbered, and UUIDs too, in the order of their appearance. Calls nothing
that changes a GPU: a function whose name does not say that it reads is refused before it is called.
"""

import ctypes
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from nodeagent.hardware.driver import DriverError
from nodeagent.hardware.nvml import NvmlDriver
from nodeagent.hardware.nvml_calls import NVML
from partitioning import __version__

READS = re.compile(r"nvml(InitWithFlags|Shutdown|(System|Device|GpuInstance|ComputeInstance)Get\w+)")
TEXTS = "nvmlErrorString"
UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
OF_A_DEVICE = (
    *("UUID", "Name", "MinorNumber", "MigMode", "MaxMigDeviceCount", "VirtualizationMode", "ComputeMode"),
    *("CudaComputeCapability", "MemoryInfo", "RemappedRows"),
)
"""The agent ends its reading of a GPU at the first answer that it must have and does not get."""


def probe(write: Callable[[str], object]) -> str:
    """Ask everything; returns why the driver as a whole could not be asked, or an empty text."""
    driver = NvmlDriver()
    write(json.dumps({"gpuplan": __version__}))
    with _written(write):
        try:
            driver.version()
            for gpu in driver.observe():
                with suppress(NVML.NVMLError):
                    _ask_more(gpu.index, {i.id: [compute.id for compute in i.compute] for i in gpu.instances})
            driver.release()
        except DriverError as error:
            return str(error)
    return ""


def _ask_more(index: int, instances: dict[int, list[int]]) -> None:
    """What the agent asks of a healthy GPU, and before a change."""
    handle = NVML.nvmlDeviceGetHandleByIndex(index)
    for name in OF_A_DEVICE:
        with suppress(NVML.NVMLError, UnicodeDecodeError):
            getattr(NVML, f"nvmlDeviceGet{name}")(handle)
    for gpu_instance, compute_instances in instances.items():
        instance = NVML.nvmlDeviceGetGpuInstanceById(handle, gpu_instance)
        for compute_instance in compute_instances:
            NVML.nvmlGpuInstanceGetComputeInstanceById(instance, compute_instance)


@contextmanager
def _written(write: Callable[[str], object]) -> Iterator[None]:
    """Every call of the binding is, meanwhile."""
    look_up, readings = NVML._nvmlGetFunctionPointer, _Readings(write)

    def found(symbol: str) -> Any:
        if symbol == TEXTS:
            return look_up(symbol)
        if READS.fullmatch(symbol) is None:
            raise NVML.NVMLError(NVML.NVML_ERROR_NO_PERMISSION)
        try:
            return partial(readings.call, symbol, look_up(symbol))
        except NVML.NVMLError_FunctionNotFound:
            readings.add({"call": symbol, "code": NVML.NVML_ERROR_FUNCTION_NOT_FOUND})
            raise

    NVML._nvmlGetFunctionPointer = found
    try:
        yield
    finally:
        NVML._nvmlGetFunctionPointer = look_up


class _Readings:
    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._asked: set[str] = set()
        self._handles: dict[int, str] = {}
        self._uuids: dict[str, str] = {}

    def add(self, question: dict[str, Any], **answers: Any) -> None:
        key = json.dumps(question)
        if key not in self._asked:
            self._asked.add(key)
            self._write(json.dumps(question | answers))

    def call(self, symbol: str, function: Callable[..., int], *arguments: Any) -> int:
        """Make the call, and write it down."""
        given = [getattr(argument, "_obj", argument) for argument in arguments]  # what `byref` refers to
        places = [
            n for n, argument in enumerate(arguments) if given[n] is not argument or hasattr(argument, "_length_")
        ]
        before = {n: bytes(given[n]) for n in places}
        asked = [_room(given[n], before[n]) if n in before else self._value(given[n]) for n in range(len(given))]
        code = function(*arguments)
        after = {n: bytes(given[n]) for n in places}
        answers = {str(n): self._decoded(type(given[n]), after[n]) for n in places if after[n] != before[n]}
        if code == NVML.NVML_ERROR_FUNCTION_NOT_FOUND:
            self.add({"call": symbol, "code": code})
        else:
            self.add({"call": symbol, "arguments": asked}, code=code, **({"answers": answers} if answers else {}))
        return code

    def _value(self, argument: Any) -> Any:
        if hasattr(argument, "contents"):
            return self._handle(ctypes.cast(argument, ctypes.c_void_p).value)
        return getattr(argument, "value", argument)

    def _handle(self, address: int | None) -> str | None:
        return self._handles.setdefault(address, f"handle {len(self._handles)}") if address else None

    def _decoded(self, kind: Any, raw: bytes) -> Any:
        """What is in the memory of a value of this kind; a list ends before what is all zero."""
        if hasattr(kind, "_fields_"):
            parts = {name: (getattr(kind, name), field) for name, field, *_ in kind._fields_}
            return {n: self._decoded(field, raw[at.offset : at.offset + at.size]) for n, (at, field) in parts.items()}
        if hasattr(kind, "contents"):
            return self._handle(int.from_bytes(raw, "little"))
        if not hasattr(kind, "_length_"):
            return kind.from_buffer_copy(raw).value
        if kind._type_ is ctypes.c_char:
            return UUID.sub(self._numbered, raw.partition(b"\0")[0].decode("latin-1"))
        size, used = ctypes.sizeof(kind._type_), len(raw.rstrip(b"\0"))
        return [self._decoded(kind._type_, raw[at : at + size]) for at in range(0, used, size)]

    def _numbered(self, uuid: re.Match[str]) -> str:
        return self._uuids.setdefault(uuid[0], f"00000000-0000-4000-8000-{len(self._uuids):012}")


def _room(place: Any, before: bytes) -> dict[str, Any]:
    """For an answer: its type, and the number that it begins with, which may be a count or a version."""
    kind: type = place._type_ if hasattr(place, "_length_") else type(place)
    return {"room": kind.__name__, "holds": int.from_bytes(before[:4], "little")}
