"""Stands where `pynvml` keeps its loaded C library.

`Library` answers attribute access with C function pointers, as `ctypes.CDLL` does, and with AttributeError for symbols
the simulated driver branch does not have; `answer` makes a call that came another way. Around each call it takes the
lock, and turns `Refused` into a return code. An exception inside a callback would read as success: none may leave it.
"""

import ctypes
import functools
import logging
import os
import weakref
from collections.abc import Callable
from typing import Any

from sandbox.driver import clients
from sandbox.driver.abi.registry import Export
from sandbox.driver.abi.symbols import EXPORTS
from sandbox.driver.status import Refused, Status
from sandbox.driver.store import Store

log = logging.getLogger(__name__)

# The binding calls every symbol without a signature; so does this, by address.
Untyped = ctypes.CFUNCTYPE(ctypes.c_int)


class Library:
    def __init__(self, store: Store) -> None:
        self.store = store
        self._initialised = 0
        self._close: Callable[[], object] | None = None
        """Held while the library is started: a reset and a change of MIG mode do not wait."""
        self._version = self.driver_version()
        self._texts = {int(code): ctypes.create_string_buffer(code.text.encode()) for code in Status}
        self._callbacks: list[object] = []  # C code holds their addresses only

    def __getattr__(self, name: str) -> Any:
        """Made when it is asked for: a library behind a socket needs none."""
        if name == "nvmlErrorString":
            made = self._pointer(ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int)(self._error_text))
        elif name in EXPORTS:
            answer = functools.partial(self._answer_own, name)
            made = self._pointer(ctypes.CFUNCTYPE(ctypes.c_int, *EXPORTS[name].types)(answer))
        else:
            raise AttributeError(f"undefined symbol: {name}")
        setattr(self, name, made)
        return made

    def _pointer(self, callback: Any) -> Any:
        self._callbacks.append(callback)
        address = ctypes.cast(callback, ctypes.c_void_p).value
        assert address is not None
        return Untyped(address)

    def _error_text(self, code: int) -> int:
        return ctypes.addressof(self._texts.get(code, self._texts[Status.UNKNOWN]))

    def _answer_own(self, name: str, *arguments: int | None) -> int:
        return int(self.answer(name, arguments))

    def answer(self, name: str, arguments: tuple[int | None, ...]) -> Status:
        """Make the call of this name; never raises."""
        try:
            return self.call(EXPORTS[name], arguments)
        except Refused as refusal:
            return refusal.status
        except Exception:
            log.exception("%s%r", name, arguments)
            return Status.UNKNOWN

    def call(self, export: Export, arguments: tuple[int | None, ...]) -> Status:
        """Make one call on the machine; raises Refused."""
        if not self._initialised and export.initialises <= 0:
            return Status.UNINITIALIZED
        # A process keeps the library it has loaded; the kernel driver refuses one of another version.
        if self.driver_version() != self._version:
            return Status.LIB_RM_VERSION_MISMATCH
        self.perform(export, arguments)
        self._initialised += export.initialises
        self._hold()
        return Status.SUCCESS

    def driver_version(self) -> str:
        """That of the kernel driver, now."""
        return self.store.read()["driver_version"]

    def perform(self, export: Export, arguments: tuple[int | None, ...]) -> None:
        """Answer one call from the machine's state; raises Refused."""
        if export.writes:
            with self.store.writing() as copy:
                export.function(copy, *arguments)
        else:
            export.function(self.store.read(), *arguments)

    def close(self) -> None:
        """As a process does when it ends."""
        self._initialised = 0
        self._hold()

    def _hold(self) -> None:
        """As the device files, which the library keeps open from its first start to its last end."""
        if self._initialised > 0 and self._close is None:
            self._close = weakref.finalize(self, os.close, clients.enter(self.store.path))
        elif self._initialised <= 0 and self._close is not None:
            self._close()
            self._close = None
