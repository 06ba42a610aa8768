"""Faults for tests: make the server slow, refuse, or cut the line.

A fault is a function from a request to what goes wrong with it, or None. It runs on the server's thread before the
request is looked at, in the order of `ApiServer.faults`; the first that answers wins.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sandbox.apiserver.api.requests import Request
from sandbox.apiserver.errors import ApiError


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Answer as usual, but later."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Answer an error instead."""

    code: int
    reason: str = "InternalError"
    message: str = "injected fault"

    def error(self) -> ApiError:
        return ApiError(self.code, self.reason, self.message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disconnect:
    """Close the connection without an answer; `after_write` first does what was asked."""

    after_write: bool = False


Fault = Callable[[Request], Delay | Refuse | Disconnect | None]
