"""Puts the simulated driver where the `pynvml` binding keeps its C library, and takes it out again.

Two globals of the binding are touched: `nvmlLib` and the cache of function pointers. The program above is unchanged.
"""

from collections.abc import Callable

import pynvml

from sandbox.driver.abi.library import Library
from sandbox.driver.store import Store


def install(store: Store, library: type[Library] = Library) -> Callable[[], None]:
    """Returns the function that undoes it."""
    before = pynvml.nvmlLib
    _replace(library(store))
    return lambda: _replace(before)


def _replace(library: object) -> None:
    setattr(pynvml, "nvmlLib", library)  # noqa: B010 - the binding declares it None
    pynvml._nvmlGetFunctionPointer_cache.clear()
