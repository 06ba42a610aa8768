"""The pages, over HTTP."""

import json
import socket
from collections.abc import Iterator
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry, Counter

from kube.serve import Page, Server, check_page, json_page, metrics_page


class ServerDesk:
    def __init__(self) -> None:
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
        )

    def broken(self) -> Page:
        raise RuntimeError("no page today")

    def get(self, path: str) -> tuple[int, str, str]:
        try:
            with urlopen(f"http://127.0.0.1:{self.server.port}{path}", timeout=5) as answer:
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


def test_a_client_that_sends_nothing_is_dropped() -> None:
    server = Server("127.0.0.1", 0, {}, client_seconds=0.05)
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as silent:
            assert silent.recv(1) == b""
    finally:
        server.stop()
