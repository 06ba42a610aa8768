"""Runs the API server in this process: `ApiServer().start()`, then `url`, at the end `stop()`.

Takes a port (0: any) on the loopback interface and serves HTTP on a thread and event loop of its own. All state belongs
to that thread. Must never listen elsewhere.
"""

import asyncio
import json
import logging
import threading
from typing import Final, Self

import yaml
from aiohttp import web
from multidict import CIMultiDict

from sandbox.apiserver.api.dispatch import Dispatcher
from sandbox.apiserver.api.requests import Reply, Request, json_reply
from sandbox.apiserver.api.watches import Watch
from sandbox.apiserver.bootstrap import bootstrap
from sandbox.apiserver.errors import ApiError
from sandbox.apiserver.lifecycle.context import Cluster

logger = logging.getLogger(__name__)
LOOPBACK: Final = "127.0.0.1"
_MOST_BODY_BYTES: Final = 64 << 20
_START_SECONDS: Final = 30.0
_IDLE_SECONDS: Final = 3600.0  # clients keep connections in pools and stumble over those that were closed meanwhile


class ApiServer:
    """A Kubernetes API server in this process."""

    def __init__(
        self, port: int = 0, *, watch_window: int = 5000, bookmark_seconds: float = 60.0, limits_agents: bool = False
    ) -> None:
        """`watch_window`: how many events of each kind a watch may lie behind before it gets 410; `limits_agents`: the
        admission policy gpuplan-agent-node is in force."""
        self._port = port
        self._cluster = Cluster(watch_window=watch_window, limits_agents=limits_agents)
        self._dispatcher = Dispatcher(self._cluster, bookmark_seconds=bookmark_seconds)
        self._watches: dict[Watch, web.Request] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="sandbox-apiserver", daemon=True)
        self._ready = threading.Event()
        self._failure: OSError | None = None
        self._serving = False

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._port}"

    def kubeconfig(self) -> str:
        """A kubeconfig file that points here."""
        return yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "sandbox", "cluster": {"server": self.url}}],
                "users": [{"name": "sandbox", "user": {}}],
                "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
                "current-context": "sandbox",
            },
            sort_keys=False,
        )

    def start(self) -> Self:
        """Returns once the port is open; raises what kept it shut."""
        self._thread.start()
        if not self._ready.wait(_START_SECONDS):
            raise TimeoutError(f"the API server did not start within {_START_SECONDS:.0f} s")
        if not self._serving:
            raise self._failure or RuntimeError("the API server did not start; its thread has printed why")
        return self

    def stop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(_START_SECONDS)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        runner = web.AppRunner(
            self._application(),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=0.1,
            keepalive_timeout=_IDLE_SECONDS,
        )
        try:
            self._loop.run_until_complete(self._open(runner))
            self._serving = True
        except OSError as error:  # the port is taken
            self._failure = error
        finally:
            self._ready.set()
        if self._serving:
            self._loop.run_forever()
        for watch in self._watches:
            watch.stop()
        self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _open(self, runner: web.AppRunner) -> None:
        bootstrap(self._cluster)
        await runner.setup()
        site = web.TCPSite(runner, LOOPBACK, self._port)
        await site.start()
        self._port = runner.addresses[0][1]

    def _application(self) -> web.Application:
        application = web.Application(client_max_size=_MOST_BODY_BYTES)
        application.router.add_route("*", "/{path:.*}", self._handle)
        return application

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        request = Request(
            method=http.method,
            path=http.path,
            query=http.query,
            headers={name.lower(): value for name, value in http.headers.items()},
            body=await http.read(),
        )
        try:
            answer = await self._answer(request)
        except ApiError as error:
            answer = json_reply(error.code, error.status())
        except Exception as error:
            logger.exception("%s %s", http.method, http.path_qs)
            broken = ApiError(500, "InternalError", f"Internal error occurred: {error!r}")
            answer = json_reply(broken.code, broken.status())
        return await self._stream(http, answer) if isinstance(answer, Watch) else _response(answer)

    async def _answer(self, request: Request) -> Reply | Watch:
        return self._dispatcher.answer(request)

    async def _stream(self, http: web.Request, watch: Watch) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(http)
        self._watches[watch] = http
        lines = watch.lines()
        try:
            async for chunk in lines:
                await response.write(chunk)
            await response.write_eof()
        except ConnectionError:
            pass  # the client went away
        finally:
            self._watches.pop(watch, None)
            await lines.aclose()
        return response


def _response(reply: Reply) -> web.Response:
    headers = CIMultiDict({"Content-Type": reply.content_type, **reply.headers})
    for warning in reply.warnings:
        headers.add("Warning", f"299 - {json.dumps(warning)}")
    return web.Response(status=reply.code, body=reply.body, headers=headers)
