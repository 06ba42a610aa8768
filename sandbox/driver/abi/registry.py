"""The table of exported C functions, filled by the decorators on them.

`@reads` and `@writes` name the C argument types; the function gets the machine's state (shared or alone) and the raw
arguments. It returns nothing for success or raises `Refused`.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., None])

INT, UINT = ctypes.c_int, ctypes.c_uint
HANDLE = ctypes.c_void_p  # an opaque struct pointer of the caller's
OUT = ctypes.c_void_p  # an address to write to


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    function: Callable[..., None]
    types: tuple[Any, ...]
    writes: bool
    """It has the machine alone, and the state is saved."""
    initialises: int
    """1 or -1 for the calls that start and end the library."""


EXPORTS: dict[str, Export] = {}


def reads(*types: Any, initialises: int = 0) -> Callable[[Function], Function]:
    return _export(types, writes=False, initialises=initialises)


def writes(*types: Any) -> Callable[[Function], Function]:
    return _export(types, writes=True, initialises=0)


def _export(types: tuple[Any, ...], *, writes: bool, initialises: int) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        export = Export(function=function, types=types, writes=writes, initialises=initialises)
        EXPORTS[function.__name__] = export
        return function

    return register
