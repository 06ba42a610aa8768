"""NVML's return codes as the simulated driver uses them, with the texts of the real library.

`Refused` carries a code from the state machine to the C boundary, where it becomes the function's return value. The
texts are those of libnvidia-ml 535.261.03 (`nvmlErrorString`).
"""

from enum import IntEnum
from typing import TypeVar

Value = TypeVar("Value")


class Status(IntEnum):
    SUCCESS = 0
    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    DRIVER_NOT_LOADED = 9
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    LIB_RM_VERSION_MISMATCH = 18
    IN_USE = 19
    INSUFFICIENT_RESOURCES = 23
    ARGUMENT_VERSION_MISMATCH = 25
    UNKNOWN = 999


ERROR_TEXTS = {
    Status.SUCCESS: "Success",
    Status.UNINITIALIZED: "Uninitialized",
    Status.INVALID_ARGUMENT: "Invalid Argument",
    Status.NOT_SUPPORTED: "Not Supported",
    Status.NO_PERMISSION: "Insufficient Permissions",
    Status.NOT_FOUND: "Not Found",
    Status.INSUFFICIENT_SIZE: "Insufficient Size",
    Status.DRIVER_NOT_LOADED: "Driver Not Loaded",
    Status.FUNCTION_NOT_FOUND: "Function Not Found",
    Status.GPU_IS_LOST: "GPU is lost",
    Status.LIB_RM_VERSION_MISMATCH: "Driver/library version mismatch",
    Status.IN_USE: "In use by another client",
    Status.INSUFFICIENT_RESOURCES: "Insufficient Resources",
    Status.ARGUMENT_VERSION_MISMATCH: "Argument version mismatch",
    Status.UNKNOWN: "Unknown Error",
}


class Refused(Exception):  # noqa: N818 - an answer of the driver, not a fault of ours
    """The driver answers a call with this code instead of doing it."""

    def __init__(self, status: Status) -> None:
        super().__init__(ERROR_TEXTS[status])
        self.status = status


def require(condition: object, status: Status) -> None:
    """Refuse with this code unless the condition holds."""
    if not condition:
        raise Refused(status)


def given(value: Value | None, status: Status) -> Value:
    """Refuse with this code where there is no value, or a null pointer."""
    require(value, status)
    assert value is not None
    return value
