"""Servers that stop with their test."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kube.fake_api import FakeApi, Route
from tests.kube.watched import Watched


@pytest.fixture
def serve() -> Iterator[Callable[[Route], FakeApi]]:
    running: list[FakeApi] = []

    def start(route: Route) -> FakeApi:
        running.append(FakeApi(route))
        return running[-1]

    yield start
    for api in running:
        api.stop()


@pytest.fixture
def watch() -> Iterator[Callable[..., Watched]]:
    started: list[Watched] = []

    def start(*args: Any, **kwargs: Any) -> Watched:
        started.append(Watched(*args, **kwargs))
        return started[-1]

    yield start
    for watched in started:
        watched.reflector.stop(timeout_seconds=0.2)
