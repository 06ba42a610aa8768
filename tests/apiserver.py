"""An embedded API server that a test makes slow, makes refuse, or whose connections and history it cuts.

A fault is a function from a request to an effect, or None. Faults run on the server's thread before the request is
handled, in the order of `ApiServer.faults`; the first effect counts.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from aiohttp import web
from kubernetes.client import ApiClient

from kube import apply
from kube.errors import NotFound
from sandbox import apiserver
from sandbox.apiserver.api.requests import Reply, Request
from sandbox.apiserver.api.watches import Watch
from sandbox.apiserver.errors import ApiError

_T = TypeVar("_T")
ANSWER_SECONDS = 30.0


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


def exists(api: ApiClient, path: str) -> bool:
    try:
        apply.get(api, path)
    except NotFound:
        return False
    return True


Fault = Callable[[Request], Delay | Refuse | Disconnect | None]


class _Cut(BaseException):
    """Ends a request without an answer; no Exception, which the server would answer with 500."""


class ApiServer(apiserver.ApiServer):
    """The embedded server with faults."""

    def __init__(self, port: int = 0, **options: Any) -> None:
        super().__init__(port, **options)
        self.faults: list[Fault] = []

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def drop_watches(self, *, abort: bool = False) -> int:
        """End every open watch, in good order or by cutting its connection; returns how many there were."""

        def drop() -> int:
            for watch, http in self._watches.items():
                watch.stop()
                if abort and http.transport is not None:
                    http.transport.abort()
            return len(self._watches)

        return self._on_loop(drop)

    def compact(self) -> None:
        """Forget the history, as etcd's compaction does: older watches and lists get 410."""

        def forget() -> None:
            for collection in self._cluster.store.collections.values():
                if collection.history:
                    collection.horizon = collection.history[-1].version
                    collection.history.clear()

        self._on_loop(forget)

    def _on_loop(self, call: Callable[[], _T]) -> _T:
        async def run() -> _T:
            return call()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(ANSWER_SECONDS)

    async def _answer(self, request: Request) -> Reply | Watch:
        for fault in list(self.faults):
            effect = fault(request)
            if isinstance(effect, Refuse):
                raise effect.error()
            if isinstance(effect, Disconnect):
                if effect.after_write:
                    await super()._answer(request)
                raise _Cut
            if isinstance(effect, Delay):
                await asyncio.sleep(effect.seconds)
        return await super()._answer(request)

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        try:
            return await super()._handle(http)
        except _Cut:
            if http.transport is not None:
                http.transport.abort()
            return web.Response()
