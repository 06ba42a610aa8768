"""How this package calls NVML: the binding, its error codes as the exceptions of `driver`, and list calls.

`attempt` turns each NVMLError into a DriverError by its code, and whatever else an answer makes the binding raise into
one too: a name that is no text, say. An `optional` answer that the driver does not have is None, and costs only what
needs it; any other error of that call is one of the GPU. Keeps no state and makes no call of its own.
"""

import ctypes
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

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

T = TypeVar("T")
NVML: Any = pynvml
"""The binding has no types."""

MOST = 16
"""GPUs, instances of a GPU, placements of a profile. A larger count is not believed."""
ROOM = 256
"""For every answer: instance counts in profile infos were seen to be wrong (A30), and short arrays overflow."""
LEAST_DRIVER = "the driver lacks a function that gpuplan calls: install driver 510 or newer"

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
MISSING_CODES = ["NotSupported", "InvalidArgument", "NoPermission", "NotFound", "FunctionNotFound"]
MISSING_ERRORS = tuple(getattr(NVML, f"NVMLError_{code}") for code in [*MISSING_CODES, "ArgumentVersionMismatch"])
MISSING = (*MISSING_ERRORS, NVML.NVMLLibraryMismatchError, UnicodeDecodeError)
"""What a driver answers that does not have an optional answer."""
ERRORS = {getattr(NVML, f"NVML_ERROR_{code}"): kind for kind, codes in _CODES.items() for code in codes}


@contextmanager
def attempt(what: str) -> Iterator[None]:
    """Turn every error into a DriverError that names what was attempted."""
    try:
        yield
    except DriverError:
        raise
    except (NVML.NVMLError_FunctionNotFound, NVML.NVMLLibraryMismatchError) as error:
        raise RefusedError(what, LEAST_DRIVER) from error
    except NVML.NVMLError as error:
        # By code, never by `in` or a set: these exceptions define __eq__ without __hash__.
        answer = f"{error}: {NO_LIBRARY}" if error.value == NVML.NVML_ERROR_LIBRARY_NOT_FOUND else str(error)
        raise ERRORS.get(error.value, DriverError)(what, answer) from error
    except Exception as error:
        raise DriverError(what, f"the answer is not understood: {type(error).__name__}: {error}") from error


def known(call: Callable[[], T]) -> T | None:
    """None for what this GPU lacks: both codes mean so, depending on driver and enum."""
    try:
        return call()
    except (NVML.NVMLError_NotSupported, NVML.NVMLError_InvalidArgument):
        return None


def optional(call: Callable[[], T]) -> T | None:
    """None where the driver does not have this answer."""
    try:
        return call()
    except MISSING:
        return None


def believed(count: int, what: str, most: int = MOST) -> int:
    """A count that this can be; raises DriverError for any other."""
    if count > most:
        raise DriverError(f"counting {what}", f"the driver counts {count}, and more than {most} are not believed")
    return count


def of_form(text: object, form: re.Pattern[str], what: str) -> str:
    """A name that others get too, as an id, a resource or a file; raises DriverError for one of another form."""
    if not isinstance(text, str) or form.fullmatch(text) is None:
        raise DriverError(f"reading {what}", f"{text!r:.100} is not understood")
    return text


def processes(binding: Callable[[Any], Any], device: Any) -> set[int]:
    """The ids of a list of processes, in one call: the binding makes a second one once there is a process.

    Driver 530 writes entries of 32 bytes where others write 24; the array has room for these, too.
    """
    array, count = (NVML.c_nvmlProcessInfo_v3_t * (2 * ROOM))(), ctypes.c_uint(ROOM)
    try:
        call = NVML._nvmlGetFunctionPointer(f"{binding.__name__}_v3")
        NVML._nvmlCheckReturn(call(device, ctypes.byref(count), array))
    except NVML.NVMLError_InsufficientSize:
        return {entry.pid for entry in binding(device)}
    return {array[n].pid for n in range(count.value)}


def listed(kind: Any, call: Callable[[Any, Any], Any]) -> list[Any]:
    """The answer of a raw list call, which wants the caller's array; null is refused."""
    array, count = (kind * ROOM)(), ctypes.c_uint(ROOM)
    call(array, ctypes.byref(count))
    return [array[n] for n in range(believed(count.value, "instances"))]
