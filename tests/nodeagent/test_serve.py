"""The pages of the agent: what they answer, and that nobody can hold a thread of theirs."""

import socket
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry

from nodeagent.reported import serve


def test_a_client_that_says_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "CLIENT_SECONDS", 0.05)
    server = serve.Server("127.0.0.1", 0, registry=CollectorRegistry(), health=list, readiness=lambda: ["not yet"])
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as silent:
            assert silent.recv(1) == b""
        with pytest.raises(HTTPError) as refused:
            urlopen(f"http://127.0.0.1:{server.port}/readyz", timeout=10)
        assert (refused.value.code, refused.value.read()) == (503, b"not yet\n")
        refused.value.close()
    finally:
        server.stop()
