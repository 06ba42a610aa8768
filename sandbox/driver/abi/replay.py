"""Answers calls as a recorded driver did: the lines of JSON that `gpuplan-nodeagent probe` wrote on its machine.

A call is answered where the same function was asked with the same arguments, from the same handles. What was not asked
then is UNKNOWN, and logged. Nothing can be changed.
"""

import ctypes
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import pynvml

from sandbox.driver.abi.library import Library
from sandbox.driver.abi.pointers import get_uint, put_struct
from sandbox.driver.abi.registry import Export
from sandbox.driver.status import Refused, Status
from sandbox.driver.store import Store

log = logging.getLogger(__name__)

FIRST_HANDLE = 1 << 40
SUFFIX = ".jsonl"
POINTER = "LP_"
SIMPLE: Mapping[str, Any] = {kind.__name__: kind for kind in (ctypes.c_int, ctypes.c_uint, ctypes.c_ulonglong)}


def library_of(store: Store) -> type[Library]:
    """The one that answers from this file."""
    return Replay if store.path.suffix == SUFFIX else Library


class Replay(Library):
    def __init__(self, store: Store) -> None:
        self._readings: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for line in store.path.read_text(encoding="utf-8").splitlines():
            reading = json.loads(line)
            if "call" in reading:
                self._readings[reading["call"]].append(reading)
        super().__init__(store)

    def driver_version(self) -> str:
        """That of a machine without a state: it never changes."""
        return ""

    def __getattr__(self, name: str) -> Callable[..., int]:
        if any("arguments" not in reading for reading in self._readings[name]):
            raise AttributeError(f"undefined symbol: {name}")
        pointer: Callable[..., int] = super().__getattr__(name)
        return pointer

    def perform(self, export: Export, arguments: tuple[int | None, ...]) -> None:
        name = export.function.__name__
        reading = next((one for one in self._readings[name] if _asks(one.get("arguments"), arguments)), None)
        if reading is None:
            log.warning("not recorded: %s%r", name, arguments)
            raise Refused(Status.NO_PERMISSION if export.writes else Status.UNKNOWN)
        for position, answer in reading.get("answers", {}).items():
            _put(arguments[int(position)], reading["arguments"][int(position)]["room"], answer)
        if reading["code"]:
            raise Refused(next((status for status in Status if status == reading["code"]), Status.UNKNOWN))


def _asks(recorded: list[Any] | None, arguments: tuple[int | None, ...]) -> bool:
    """Whether a recorded question is this one."""
    if recorded is None:
        return True
    pairs = zip(recorded, arguments, strict=True)
    return all(
        bool(given) and (_is_text(asked) or get_uint(given) == asked["holds"])
        if isinstance(asked, dict)
        else (given or 0) == _number(asked)
        for asked, given in pairs
    )


def _is_text(asked: dict[str, Any]) -> bool:
    return bool(asked["room"] == "c_char")


def _number(value: Any) -> int:
    """Of a handle, a null pointer, or a number."""
    return FIRST_HANDLE + (int(value.split()[1]) << 12) if isinstance(value, str) else value or 0


def _put(address: int | None, room: str, answer: Any) -> None:
    if isinstance(answer, list):
        for index, entry in enumerate(answer):
            put_struct(address, _made(room, entry), index)
    else:
        put_struct(address, _made(room, answer))


def _made(room: str, answer: Any) -> Any:
    """A value of this kind."""
    if room == "c_char":
        return ctypes.create_string_buffer(answer.encode("latin-1"))
    if room.startswith(POINTER):
        return ctypes.c_void_p(_number(answer))
    if room in SIMPLE:
        return SIMPLE[room](answer)
    made = getattr(pynvml, room)()
    for name, value in answer.items():
        field = next(kind for field, kind, *_ in made._fields_ if field == name)
        _set(made, name, field, value)
    return made


def _set(made: Any, name: str, kind: Any, value: Any) -> None:
    if hasattr(kind, "_length_") and isinstance(value, str):
        value = value.encode("latin-1")
    elif hasattr(kind, "_fields_"):
        value = _made(kind.__name__, value)
    elif hasattr(kind, "contents"):
        value = ctypes.cast(_number(value), kind)
    setattr(made, name, value)
