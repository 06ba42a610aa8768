"""Reads and writes through the raw addresses that the binding hands over.

A null pointer is an invalid argument, as in the library. An address that can be no pointer raises `BadPointerError`:
there the real library would crash the process, typically because a placement was passed by value instead of `byref`.
"""

import ctypes
from typing import TypeVar

from sandbox.driver.status import Status, given, require

Structure = TypeVar("Structure", bound=ctypes.Structure)
Address = int | None
"""As ctypes hands over a pointer; None is null."""

# {start, size} in one register is start + (size << 32), far below any heap or stack of a 64-bit process.
LARGEST_SMALL_INTEGER = 4096
BY_VALUE_FROM, BY_VALUE_TO = 1 << 32, 64 << 32


class BadPointerError(Exception):
    """The caller passed something that is no address where the C signature has a pointer."""


def checked(pointer: Address) -> int:
    address = given(pointer, Status.INVALID_ARGUMENT)
    if address < LARGEST_SMALL_INTEGER or BY_VALUE_FROM <= address < BY_VALUE_TO:
        raise BadPointerError(f"{address:#x} is no pointer: was a struct passed by value instead of byref()?")
    return address


def put_int(address: Address, value: int) -> None:
    ctypes.c_int.from_address(checked(address)).value = value


def put_uint(address: Address, value: int) -> None:
    ctypes.c_uint.from_address(checked(address)).value = value


def put_pointer(address: Address, value: int) -> None:
    ctypes.c_void_p.from_address(checked(address)).value = value


def get_uint(address: Address) -> int:
    return ctypes.c_uint.from_address(checked(address)).value


def put_text(address: Address, length: int, text: str) -> None:
    encoded = text.encode() + b"\0"
    buffer = checked(address)
    require(length >= len(encoded), Status.INSUFFICIENT_SIZE)
    ctypes.memmove(buffer, encoded, len(encoded))


def struct_at(address: Address, structure: type[Structure], index: int = 0) -> Structure:
    """The structure at the address, or the index-th one of an array there."""
    return structure.from_address(checked(address) + index * ctypes.sizeof(structure))
