"""How this package calls NVML: the binding, its error codes as the exceptions of `driver`, and list calls.

`attempt` turns each NVMLError into a DriverError by its code. Keeps no state and makes no call of its own.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pynvml

from nodeagent.hardware.driver import (
    DriverError,
    DriverGoneError,
    DriverReplacedError,
    DriverTimeoutError,
    GpuLostError,
    InUseError,
    NotPermittedError,
    RefusedError,
)

NVML: Any = pynvml
"""The binding has no types."""

MOST_INSTANCES = 16
"""Room for every answer: instance counts in profile infos were seen to be wrong (A30), and short arrays overflow."""

_CODES: dict[type[DriverError], tuple[str, ...]] = {
    DriverGoneError: ("UNINITIALIZED", "DRIVER_NOT_LOADED", "LIBRARY_NOT_FOUND"),
    DriverReplacedError: ("LIB_RM_VERSION_MISMATCH",),
    DriverTimeoutError: ("TIMEOUT",),
    GpuLostError: ("GPU_IS_LOST", "RESET_REQUIRED"),
    InUseError: ("IN_USE",),
    RefusedError: ("INVALID_ARGUMENT", "NOT_SUPPORTED", "NOT_FOUND", "INSUFFICIENT_RESOURCES"),
    NotPermittedError: ("NO_PERMISSION",),
}
NO_LIBRARY = (
    "no driver is in the agent's container: install NVIDIA's driver on the node, and set the chart's value "
    "nodes.runtimeClassName to nvidia where NVIDIA's container runtime is not the node's default one"
)
ERRORS = {getattr(NVML, f"NVML_ERROR_{code}"): kind for kind, codes in _CODES.items() for code in codes}


@contextmanager
def attempt(what: str) -> Iterator[None]:
    """Turn an NVMLError into a DriverError that names what was attempted."""
    try:
        yield
    except NVML.NVMLError as error:
        # By code, never by `in` or a set: these exceptions define __eq__ without __hash__.
        answer = f"{error}: {NO_LIBRARY}" if error.value == NVML.NVML_ERROR_LIBRARY_NOT_FOUND else str(error)
        raise ERRORS.get(error.value, DriverError)(what, answer) from error


def known(call: Callable[[], Any]) -> Any | None:
    """None for what this GPU lacks: both codes mean so, depending on driver and enum."""
    try:
        return call()
    except (NVML.NVMLError_NotSupported, NVML.NVMLError_InvalidArgument):
        return None


def listed(kind: Any, call: Callable[[Any, Any], Any]) -> list[Any]:
    """The answer of a raw list call, which wants the caller's array; null is refused."""
    array, count = (kind * MOST_INSTANCES)(), ctypes.c_uint(MOST_INSTANCES)
    call(array, ctypes.byref(count))
    return [array[n] for n in range(count.value)]
