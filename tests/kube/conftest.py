"""Servers that stop with their test."""

from collections.abc import Callable, Iterator

import pytest

from tests.kube.fake_api import FakeApi, Route


@pytest.fixture
def serve() -> Iterator[Callable[[Route], FakeApi]]:
    running: list[FakeApi] = []

    def start(route: Route) -> FakeApi:
        running.append(FakeApi(route))
        return running[-1]

    yield start
    for api in running:
        api.stop()
