"""Answers the calls of the shared library, for any number of processes, from one machine's state.

Takes the machine's store and the folder of the library; listens on a socket there. Each connection is a process that
has loaded the library: it starts and ends it for itself, and is gone when its connection is. Symbols that are asked for
and not simulated are refused, and kept in `not_simulated`.
"""

import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from sandbox.driver.abi.library import Library
from sandbox.driver.abi.pointers import memory_of
from sandbox.driver.abi.symbols import EXPORTS
from sandbox.driver.status import Status
from sandbox.driver.store import Store

SOCKET = "nvml.sock"
CALL = struct.Struct("64s6Q")
FRAME = struct.Struct("IIQ")
RETURN, READ, WRITE = range(3)

log = logging.getLogger(__name__)


class Server:
    """Serves from its start to its stop."""

    def __init__(self, store: Store, folder: Path, library: type[Library] = Library) -> None:
        self.not_simulated: set[str] = set()
        self._store = store
        self._library = library
        self._place = folder / SOCKET
        self._listening = socket.socket(socket.AF_UNIX)
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._place.unlink(missing_ok=True)
        folder = os.open(self._place.parent, os.O_PATH | os.O_DIRECTORY)
        try:  # an address of a socket has room for 107 characters
            self._listening.bind(f"/proc/self/fd/{folder}/{SOCKET}")
        finally:
            os.close(folder)
        self._listening.listen(128)
        self._run(self._accept)

    def stop(self) -> None:
        """Every process that still has the library loaded finds no driver from now on."""
        _hang_up(self._listening)
        self._threads[0].join()  # so that no connection is added any more
        for connection in self._connections:
            _hang_up(connection)
        for thread in self._threads:
            thread.join()

    def _run(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # stopped
            while True:
                connection, _ = self._listening.accept()
                self._connections.append(connection)
                self._run(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        library = self._library(self._store)
        caller = _Caller(connection)
        try:
            with memory_of(caller):
                while True:
                    name, arguments = caller.call()
                    caller.answer(self._answer(library, name, arguments))
        except (OSError, EOFError):
            pass  # the process has ended, or this server
        finally:
            library.close()
            connection.close()

    def _answer(self, library: Library, name: str, arguments: tuple[int, ...]) -> Status:
        export = EXPORTS.get(name)
        if export is None:
            if name not in self.not_simulated:
                log.info("not simulated: %s", name)
            self.not_simulated.add(name)
            return Status.FUNCTION_NOT_FOUND
        # A register is wider than most arguments, and what it holds beyond them means nothing.
        values = (kind(word).value for kind, word in zip(export.types, arguments, strict=False))
        return library.answer(name, tuple(values))


def environment(environ: Mapping[str, str], folder: Path) -> dict[str, str]:
    """In which the loader finds the library of a folder first."""
    before = environ.get("LD_LIBRARY_PATH")
    return {**environ, "LD_LIBRARY_PATH": f"{folder}:{before}" if before else str(folder)}


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


class _Caller:
    """One process: what it calls, and its memory. Writes go out with the next frame that needs an answer, or is one."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._stream = connection.makefile("rb")
        self._unsent = bytearray()

    def call(self) -> tuple[str, tuple[int, ...]]:
        name, *arguments = CALL.unpack(self._receive(CALL.size))
        return name.rstrip(b"\0").decode(), tuple(arguments)

    def answer(self, code: Status) -> None:
        self._send(RETURN, 0, int(code))

    def read(self, address: int, length: int) -> bytes:
        self._send(READ, length, address)
        return self._receive(length)

    def write(self, address: int, content: bytes) -> None:
        self._unsent += FRAME.pack(WRITE, len(content), address) + content

    def _send(self, kind: int, length: int, address: int) -> None:
        self._connection.sendall(bytes(self._unsent) + FRAME.pack(kind, length, address))
        self._unsent.clear()

    def _receive(self, length: int) -> bytes:
        content = self._stream.read(length)
        if len(content) < length:
            raise EOFError
        return content
