"""The pages, over HTTP."""

import json
import socket
import threading
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client import CollectorRegistry, Counter

from kube.serve import (
    CLIENT_SECONDS,
    MOST_CONNECTIONS,
    Page,
    Private,
    Server,
    check_page,
    json_page,
    metrics_page,
    one_at_a_time,
)
from tests.waiting import SECONDS, eventually


class ServerDesk:
    def __init__(self, client_seconds: float = CLIENT_SECONDS) -> None:
        self.problems: list[str] = []
        registry = CollectorRegistry()
        Counter("seen", "Seen.", registry=registry).inc()
        self.server = Server(
            "127.0.0.1",
            0,
            {
                "/metrics": metrics_page(registry),
                "/healthz": check_page(lambda: self.problems),
                "/decisions": json_page(lambda: {"pass": 3}),
                "/broken": self.broken,
            },
            client_seconds,
        )

    def broken(self) -> Page:
        raise RuntimeError("no page today")

    def get(self, path: str) -> tuple[int, str, str]:
        try:
            with urlopen(f"http://127.0.0.1:{self.server.port}{path}", timeout=60) as answer:
                return answer.status, answer.headers["Content-Type"], answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.headers["Content-Type"], error.read().decode()


@pytest.fixture
def desk() -> Iterator[ServerDesk]:
    desk = ServerDesk()
    desk.server.start()
    yield desk
    desk.server.stop()


def test_pages(desk: ServerDesk) -> None:
    code, kind, body = desk.get("/metrics")
    assert (code, "seen_total 1.0" in body) == (200, True)
    assert "seen_created" not in body
    assert kind.startswith("text/plain; version=")
    code, kind, body = desk.get("/decisions?pretty=1")
    assert (code, kind, json.loads(body)) == (200, "application/json", {"pass": 3})


def test_a_check_reports_what_is_wrong(desk: ServerDesk) -> None:
    assert desk.get("/healthz")[::2] == (200, "ok\n")
    desk.problems = ["this", "that"]
    assert desk.get("/healthz")[::2] == (500, "this\nthat\n")


def test_an_unknown_path_names_the_known_ones(desk: ServerDesk) -> None:
    code, _, body = desk.get("/")
    assert code == 404
    assert "/decisions /healthz /metrics" in body


def test_a_broken_page_is_an_answer_too(desk: ServerDesk) -> None:
    assert desk.get("/broken")[0] == 500
    assert desk.get("/healthz")[0] == 200


@pytest.mark.parametrize("sends", [b"", b"x"], ids=["nothing", "a byte now and then"])
def test_a_connection_has_so_much_time_and_no_more(sends: bytes) -> None:
    server = Server("127.0.0.1", 0, {}, client_seconds=0.2)
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=0.02) as slow:

            def ended() -> bool:
                try:
                    slow.sendall(sends)
                    return slow.recv(1) == b""
                except TimeoutError:
                    return False
                except OSError:
                    return True

            assert eventually(ended, "the connection is ended")
    finally:
        server.stop()


@pytest.fixture
def flooded() -> Iterator[ServerDesk]:
    """By one other pod, with more connections than there is room for, which end after longer than a request waits."""
    desk = ServerDesk(client_seconds=600)
    desk.server.start()
    clients = []
    for _ in range(3 * MOST_CONNECTIONS):
        client = socket.create_connection(("127.0.0.1", desk.server.port), 10, source_address=("127.0.0.2", 0))
        client.sendall(b"GET /metrics")
        clients.append(client)
    yield desk
    for client in clients:
        client.close()
    desk.server.stop()


def test_probes_and_scrapes_are_answered_while_the_port_is_flooded(flooded: ServerDesk) -> None:
    for _ in range(20):
        assert flooded.get("/healthz")[0] == 200
        assert flooded.get("/metrics")[0] == 200
    running = [thread for thread in threading.enumerate() if "process_request_thread" in thread.name]
    assert len(running) <= 2 * MOST_CONNECTIONS


def test_a_flood_ends_no_connection_of_another_address(desk: ServerDesk) -> None:
    with socket.create_connection(("127.0.0.1", desk.server.port), timeout=SECONDS) as early:
        early.sendall(b"GET /healthz HTTP/1.0\r\n")
        flood = [
            socket.create_connection(("127.0.0.1", desk.server.port), 10, source_address=("127.0.0.2", 0))
            for _ in range(2 * MOST_CONNECTIONS)
        ]
        assert desk.get("/healthz")[0] == 200
        early.sendall(b"\r\n")
        assert b"200 OK" in early.recv(100)
        for client in flood:
            client.close()


def test_a_page_that_takes_long_is_made_once_at_a_time() -> None:
    made, go = [], threading.Event()

    def slow() -> Page:
        made.append(1)
        go.wait(10)
        return Page(body=b"")

    page = one_at_a_time(slow)
    threads = [threading.Thread(target=page) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: made, "one began")
    assert len(made) == 1
    go.set()
    for thread in threads:
        thread.join(10)
    assert len(made) == 5


def test_a_private_page_is_for_some() -> None:
    seen = []

    def refusal(authorization: str) -> Page | None:
        seen.append(authorization)
        return None if authorization == "Bearer mine" else Page(body=b"no\n", status=403)

    private = Private(lambda: Page(body=b"names"), refusal)
    server = Server("127.0.0.1", 0, {"/decisions": private})
    server.start()
    try:
        url = f"http://127.0.0.1:{server.port}/decisions"
        with urlopen(Request(url, headers={"Authorization": "Bearer mine"}), timeout=60) as answer:
            assert answer.read() == b"names"
        with pytest.raises(HTTPError) as refused:
            urlopen(url, timeout=60)
        with refused.value as answer:
            assert (answer.code, answer.read()) == (403, b"no\n")
        assert seen == ["Bearer mine", ""]
    finally:
        server.stop()
