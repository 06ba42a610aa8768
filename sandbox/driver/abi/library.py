"""Stands where `pynvml` keeps its loaded C library.

`Library` answers attribute access with C function pointers, as `ctypes.CDLL` does, and with AttributeError for symbols
the simulated driver branch does not have. Around each call it applies injected faults, takes the lock, and turns
`Refused` into a return code. An exception inside a callback would read as success, so none may leave one.
"""

import ctypes
import logging
import os
import time
from collections.abc import Callable
from typing import Any

from sandbox.driver.abi.handles import Kind
from sandbox.driver.abi.registry import EXPORTS, HANDLE, Access, Export, Session
from sandbox.driver.faults import Action, take
from sandbox.driver.status import ERROR_TEXTS, Refused, Status
from sandbox.driver.store import Store

log = logging.getLogger(__name__)

KILLED_EXIT_STATUS = 137
# The binding calls every symbol without a signature; so does this, by address.
Untyped = ctypes.CFUNCTYPE(ctypes.c_int)


class Library:
    def __init__(self, store: Store) -> None:
        self.session = Session(store)
        with store.reading() as machine:
            self._version = machine["driver_version"]
        self._texts = {code: ctypes.create_string_buffer(text.encode()) for code, text in ERROR_TEXTS.items()}
        self._callbacks: list[object] = []  # C code holds their addresses only
        self._symbols = {
            name: self._pointer(ctypes.CFUNCTYPE(ctypes.c_int, *export.types)(self._answering(name, export)))
            for name, export in EXPORTS.items()
        }
        texts = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int)(self._error_text)
        self._symbols["nvmlErrorString"] = self._pointer(texts)

    def __getattr__(self, name: str) -> Any:
        symbol = self.__dict__.get("_symbols", {}).get(name)
        if symbol is None:
            raise AttributeError(f"undefined symbol: {name}")
        return symbol

    def _pointer(self, callback: Any) -> Any:
        self._callbacks.append(callback)
        address = ctypes.cast(callback, ctypes.c_void_p).value
        assert address is not None
        return Untyped(address)

    def _error_text(self, code: int) -> int:
        known = code if code in self._texts else Status.UNKNOWN
        return ctypes.addressof(self._texts[Status(known)])

    def _answering(self, name: str, export: Export) -> Callable[..., int]:
        def answer(*arguments: int | None) -> int:
            try:
                return int(self._call(name, export, arguments))
            except Refused as refusal:
                return int(refusal.status)
            except Exception:
                log.exception("%s%r", name, arguments)
                return int(Status.UNKNOWN)

        return answer

    def _call(self, name: str, export: Export, arguments: tuple[int | None, ...]) -> Status:
        if export.needs_init and not self.session.initialised:
            return Status.UNINITIALIZED
        with self.session.store.reading() as machine:
            # A process keeps the library it has loaded; the kernel driver refuses one of another version.
            if machine["driver_version"] != self._version:
                return Status.LIB_RM_VERSION_MISMATCH
        fault = take(self.session.store, name, _gpu_index(export, arguments))
        if fault is not None:
            if fault["action"] == Action.DELAY:
                time.sleep(fault["seconds"])
            if fault["action"] == Action.DIE_BEFORE:
                os._exit(KILLED_EXIT_STATUS)
            if fault["action"] == Action.FAIL:
                return Status(fault["status"])
        if export.access is Access.WRITE:
            with self.session.store.writing() as machine:
                export.function(self.session, machine, *arguments)
        else:
            with self.session.store.reading() as machine:
                export.function(self.session, machine, *arguments)
        if fault is not None and fault["action"] == Action.DIE_AFTER:
            os._exit(KILLED_EXIT_STATUS)
        return Status.SUCCESS


def _gpu_index(export: Export, arguments: tuple[int | None, ...]) -> int | None:
    """The GPU a call is about, if its first argument is a handle of one."""
    if not export.types or export.types[0] is not HANDLE or not arguments[0]:
        return None
    kind = arguments[0] >> 52
    return arguments[0] >> 44 & 255 if kind in tuple(Kind) else None
