"""Reads and writes at the raw addresses that a caller of the library hands over.

The addresses are of this process where the binding calls in it, and of another where the call came through the shared
library: `memory_of` says whose they are for the length of a call. A null pointer is an invalid argument, as in the
library. An address that can be no pointer raises `BadPointerError`: there the real library would crash the process.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol, TypeVar

from sandbox.driver.status import Status, given, require

Structure = TypeVar("Structure", bound=ctypes.Structure)
Number = TypeVar("Number", ctypes.c_int, ctypes.c_uint, ctypes.c_void_p)
Address = int | None
"""As ctypes hands over a pointer; None is null."""

LARGEST_SMALL_INTEGER = 4096
# {start, size} of a placement in one register is start + (size << 32), below any stack of a 64-bit process. Nothing
# else that the binding passes can be taken for a pointer, and the heap of a program may lie there.
BY_VALUE_FROM, BY_VALUE_TO = 1 << 32, 64 << 32


class BadPointerError(Exception):
    """The caller passed something that is no address where the C signature has a pointer."""


class Memory(Protocol):
    """That of a process."""

    def read(self, address: int, length: int) -> bytes: ...

    def write(self, address: int, content: bytes) -> None: ...


class OwnMemory:
    """That of this process."""

    def read(self, address: int, length: int) -> bytes:
        return ctypes.string_at(address, length)

    def write(self, address: int, content: bytes) -> None:
        ctypes.memmove(address, content, len(content))


_CALLER: ContextVar[Memory] = ContextVar("caller", default=OwnMemory())  # noqa: B039 - it has no state


@contextmanager
def memory_of(caller: Memory) -> Iterator[None]:
    """Addresses are this caller's meanwhile."""
    token = _CALLER.set(caller)
    try:
        yield
    finally:
        _CALLER.reset(token)


def checked(pointer: Address) -> int:
    address = given(pointer, Status.INVALID_ARGUMENT)
    if address < LARGEST_SMALL_INTEGER:
        raise BadPointerError(f"{address:#x} is no pointer")
    return address


def put_int(address: Address, value: int) -> None:
    _put(address, ctypes.c_int(value))


def put_uint(address: Address, value: int) -> None:
    _put(address, ctypes.c_uint(value))


def put_pointer(address: Address, value: int, index: int = 0) -> None:
    _put(address, ctypes.c_void_p(value), index)


def get_uint(address: Address) -> int:
    return int.from_bytes(_CALLER.get().read(checked(address), ctypes.sizeof(ctypes.c_uint)), "little")


def put_text(address: Address, length: int, text: str) -> None:
    encoded = text.encode() + b"\0"
    buffer = checked(address)
    require(length >= len(encoded), Status.INSUFFICIENT_SIZE)
    _CALLER.get().write(buffer, encoded)


def get_text(address: Address, most: int) -> str:
    """Byte by byte, since nothing is known of what lies behind its end."""
    start, found = checked(address), bytearray()
    while len(found) < most and (byte := _CALLER.get().read(start + len(found), 1)) != b"\0":
        found += byte
    return found.decode(errors="replace")


def get_struct(address: Address, structure: type[Structure]) -> Structure:
    """What is at the address."""
    return structure.from_buffer_copy(_CALLER.get().read(checked(address), ctypes.sizeof(structure)))


def get_small_struct(address: Address, structure: type[Structure]) -> Structure:
    """One of two numbers, which the binding passes by value where `byref` was forgotten."""
    if BY_VALUE_FROM <= (address or 0) < BY_VALUE_TO:
        raise BadPointerError(f"{address:#x} is no pointer: was a struct passed by value instead of byref()?")
    return get_struct(address, structure)


def put_struct(address: Address, value: ctypes.Structure, index: int = 0) -> None:
    """At the address, or as the index-th one of an array there."""
    _put(address, value, index)


def _put(address: Address, value: ctypes.Structure | Number, index: int = 0) -> None:
    _CALLER.get().write(checked(address) + index * ctypes.sizeof(value), bytes(value))
