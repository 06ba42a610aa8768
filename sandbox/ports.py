"""Reserves loopback ports for servers that run in processes of their own.

A port stays reserved until `close`: one that is found free and released may be taken by another program before the
server has started. Never listens.
"""

import socket

LOOPBACK = "127.0.0.1"


class HeldPort:
    """One port that no program is given while this is open, except one that binds its number with SO_REUSEADDR.

    Python's and Go's servers do. A socket that is bound and never listens hinders none of them, nor their restart.
    """

    def __init__(self) -> None:
        self._held = socket.socket()
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind((LOOPBACK, 0))

    @property
    def number(self) -> int:
        """The port to give to the server; raises OSError once closed."""
        return int(self._held.getsockname()[1])

    def close(self) -> None:
        """Let it go; more than once is no error."""
        self._held.close()
