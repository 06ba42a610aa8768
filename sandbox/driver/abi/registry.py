"""The table of exported C functions, filled by the decorators on them.

`@reads` and `@writes` name the C argument types; the function gets the process's session, the machine's state (shared
or alone) and the raw arguments. It returns nothing for success or raises `Refused`. `@waits` runs without the lock.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., None])

UINT = ctypes.c_uint
INT = ctypes.c_int
ULONGLONG = ctypes.c_ulonglong
HANDLE = ctypes.c_void_p  # an opaque struct pointer of the caller's
OUT = ctypes.c_void_p  # an address to write to
TEXT = ctypes.c_void_p  # a C string of the caller's


class Access(Enum):
    READ = "shared lock"
    WRITE = "lock alone, state saved"
    UNLOCKED = "no lock: it may wait"


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    function: Callable[..., None]
    types: tuple[Any, ...]
    access: Access
    since: int  # first driver branch that has the symbol
    needs_init: bool


EXPORTS: dict[str, Export] = {}


def reads(*types: Any, since: int = 0) -> Callable[[Function], Function]:
    return _export(types, Access.READ, since=since)


def writes(*types: Any) -> Callable[[Function], Function]:
    return _export(types, Access.WRITE)


def waits(*types: Any) -> Callable[[Function], Function]:
    return _export(types, Access.UNLOCKED)


def starts(*types: Any) -> Callable[[Function], Function]:
    """For the calls that initialise the library."""
    return _export(types, Access.READ, needs_init=False)


def _export(
    types: tuple[Any, ...], access: Access, *, since: int = 0, needs_init: bool = True
) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        EXPORTS[function.__name__] = Export(
            function=function, types=types, access=access, since=since, needs_init=needs_init
        )
        return function

    return register
