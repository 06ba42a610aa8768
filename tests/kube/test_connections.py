"""Connections to the API server that idle are probed, so that a dead peer is noticed."""

import socket
from typing import Any

from kube import clients
from kube.transport import request
from tests.kube.watched import PATH, Script, Serve, page

PROBES = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_NODELAY")


def test_idle_connections_are_probed(serve: Serve) -> None:
    server = serve(Script([page(7)], []))
    api = clients.for_url(server.url)
    request(api, "GET", PATH)
    pool = api.rest_client.pool_manager.connection_from_url(server.url)
    connection: Any = pool._get_conn()
    assert connection.sock is not None
    tcp = [connection.sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in PROBES]
    assert connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert tcp == [15, 5, 3, 1]
    connection.close()
