"""NVML's return codes as the simulated driver uses them, with the texts of the real library.

`Refused` carries a code from the state machine to the C boundary, where it becomes the function's return value. The
texts are those of the real library (`nvmlErrorString`).
"""

from enum import IntEnum
from typing import TypeVar

Value = TypeVar("Value")


class Status(IntEnum):
    text: str

    def __new__(cls, code: int, text: str) -> "Status":
        status = int.__new__(cls, code)
        status._value_, status.text = code, text
        return status

    SUCCESS = 0, "Success"
    UNINITIALIZED = 1, "Uninitialized"
    INVALID_ARGUMENT = 2, "Invalid Argument"
    NOT_SUPPORTED = 3, "Not Supported"
    NO_PERMISSION = 4, "Insufficient Permissions"
    ALREADY_INITIALIZED = 5, "Already Initialized"
    NOT_FOUND = 6, "Not Found"
    INSUFFICIENT_SIZE = 7, "Insufficient Size"
    INSUFFICIENT_POWER = 8, "Insufficient External Power"
    DRIVER_NOT_LOADED = 9, "Driver Not Loaded"
    TIMEOUT = 10, "Timeout"
    IRQ_ISSUE = 11, "Interrupt Request Issue"
    LIBRARY_NOT_FOUND = 12, "NVML Shared Library Not Found"
    FUNCTION_NOT_FOUND = 13, "Function Not Found"
    CORRUPTED_INFOROM = 14, "Corrupted infoROM"
    GPU_IS_LOST = 15, "GPU is lost"
    RESET_REQUIRED = 16, "GPU requires reset"
    OPERATING_SYSTEM = 17, "GPU access blocked by the operating system"
    LIB_RM_VERSION_MISMATCH = 18, "Driver/library version mismatch"
    IN_USE = 19, "In use by another client"
    MEMORY = 20, "Insufficient Memory"
    NO_DATA = 21, "No data"
    VGPU_ECC_NOT_SUPPORTED = 22, "vGPU ECC not supported"
    INSUFFICIENT_RESOURCES = 23, "Insufficient Resources"
    FREQ_NOT_SUPPORTED = 24, "Invalid Frequency"
    ARGUMENT_VERSION_MISMATCH = 25, "Argument version mismatch"
    DEPRECATED = 26, "Requested functionality has been deprecated"
    NOT_READY = 27, "System is not in ready state"
    GPU_NOT_FOUND = 28, "No supported GPUs were found"
    INVALID_STATE = 29, "Resource not in correct state to perform requested operation"
    RESET_TYPE_NOT_SUPPORTED = 30, "Reset type is not supported for given device"
    UNKNOWN = 999, "Unknown Error"


class Refused(Exception):  # noqa: N818 - an answer of the driver, not a fault of ours
    """The driver answers a call with this code instead of doing it."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.text)
        self.status = status


def require(condition: object, status: Status) -> None:
    """Refuse with this code unless the condition holds."""
    if not condition:
        raise Refused(status)


def given(value: Value | None, status: Status) -> Value:
    """Refuse with this code where there is no value, or a null pointer."""
    if not value:
        raise Refused(status)
    return value
