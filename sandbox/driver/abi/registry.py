"""The table of exported C functions, filled by the decorators on them.

`@reads` and `@writes` name the C argument types; the function gets the process's session, the machine's state (shared
or alone) and the raw arguments. It returns nothing for success or raises `Refused`.
"""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from sandbox.driver.store import Store

Function = TypeVar("Function", bound=Callable[..., None])

INT, UINT = ctypes.c_int, ctypes.c_uint
HANDLE = ctypes.c_void_p  # an opaque struct pointer of the caller's
OUT = ctypes.c_void_p  # an address to write to


@dataclass(slots=True)
class Session:
    """What one process has of the library: the machine, and how often it initialised the library."""

    store: Store
    initialised: int = 0


class Access(Enum):
    READ = "shared lock"
    WRITE = "lock alone, state saved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    function: Callable[..., None]
    types: tuple[Any, ...]
    access: Access
    needs_init: bool


EXPORTS: dict[str, Export] = {}


def reads(*types: Any) -> Callable[[Function], Function]:
    return _export(types, Access.READ)


def writes(*types: Any) -> Callable[[Function], Function]:
    return _export(types, Access.WRITE)


def starts(*types: Any) -> Callable[[Function], Function]:
    """For the calls that initialise the library."""
    return _export(types, Access.READ, needs_init=False)


def _export(types: tuple[Any, ...], access: Access, *, needs_init: bool = True) -> Callable[[Function], Function]:
    def register(function: Function) -> Function:
        EXPORTS[function.__name__] = Export(function=function, types=types, access=access, needs_init=needs_init)
        return function

    return register
