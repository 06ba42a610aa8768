"""Single objects: what is sent, what comes back, and which exception a refusal becomes."""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from kubernetes.client import ApiClient

from kube import apply, clients, errors
from kube.transport import Timeouts
from tests.kube.fake_api import Answer, FakeApi, Hang, Reply, Request, Route, status

Serve = Callable[[Route], FakeApi]
PATH = "/apis/example.dev/v1/things/a"
THING = {"apiVersion": "example.dev/v1", "kind": "Thing", "metadata": {"name": "a"}}


@dataclass(frozen=True)
class Write:
    name: str
    send: Callable[[ApiClient], Any]
    method: str
    query: dict[str, str]
    content_type: str


WRITES = [
    Write(
        "apply",
        lambda api: apply.apply(api, PATH, THING, manager="m", force=True),
        "PATCH",
        {"fieldManager": "m", "force": "true"},
        "application/apply-patch+yaml",
    ),
    Write(
        "apply_status",
        lambda api: apply.apply_status(api, PATH, THING, manager="m"),
        "PATCH",
        {"fieldManager": "m", "force": "true"},
        "application/apply-patch+yaml",
    ),
    Write(
        "json_patch",
        lambda api: apply.json_patch(api, PATH, [{"op": "test", "path": "/x", "value": 1}]),
        "PATCH",
        {},
        "application/json-patch+json",
    ),
    Write(
        "merge_patch",
        lambda api: apply.merge_patch(api, PATH, {"x": None}, manager="m"),
        "PATCH",
        {"fieldManager": "m"},
        "application/merge-patch+json",
    ),
    Write("create", lambda api: apply.create(api, PATH, THING), "POST", {}, "application/json"),
    Write("replace", lambda api: apply.replace(api, PATH, THING), "PUT", {}, "application/json"),
]


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.name)
@pytest.mark.parametrize("code", [200, 201])
def test_a_write_sends_its_type_and_returns_the_object(serve: Serve, write: Write, code: int) -> None:
    server = serve(lambda request: Reply(THING, status=code))
    assert write.send(clients.for_url(server.url)) == THING
    (request,) = server.requests
    assert (request.method, request.query) == (write.method, write.query)
    assert request.headers["content-type"] == write.content_type
    assert request.path == (f"{PATH}/status" if write.name == "apply_status" else PATH)
    assert request.headers["accept-encoding"] == "gzip"
    assert isinstance(request.body, list if write.name == "json_patch" else dict)


def test_delete_carries_preconditions(serve: Serve) -> None:
    server = serve(lambda request: Reply({"kind": "Status", "status": "Success"}))
    apply.delete(clients.for_url(server.url), PATH, uid="u", resource_version="5", grace_seconds=0)
    assert server.requests[0].body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "5"},
        "gracePeriodSeconds": 0,
    }


def test_gzip_is_unpacked_and_booleans_are_lower_case(serve: Serve) -> None:
    packed = gzip.compress(json.dumps(THING).encode())
    server = serve(lambda request: Reply(packed, headers={"Content-Encoding": "gzip"}))
    assert apply.get(clients.for_url(server.url), PATH, query={"watch": False, "limit": 3}) == THING
    assert server.requests[0].query == {"watch": "false", "limit": "3"}


REFUSALS: list[tuple[Answer, type[errors.ApiError]]] = [
    (status(400, "BadRequest"), errors.BadRequest),
    (status(401, "Unauthorized"), errors.ApiError),
    (status(403, "Forbidden"), errors.Forbidden),
    (status(404, "NotFound"), errors.NotFound),
    (status(409, "AlreadyExists"), errors.AlreadyExists),
    (status(409, "Conflict"), errors.Conflict),
    (status(410, "Expired"), errors.Gone),
    (status(415, ""), errors.BadRequest),
    (status(422, "Invalid"), errors.Invalid),
    (status(429, "TooManyRequests"), errors.Unavailable),
    (status(500, "InternalError"), errors.Unavailable),
    (Reply(b"<html>bad gateway</html>", status=502), errors.Unavailable),
    (status(504, "Timeout"), errors.Unavailable),
    (Hang(), errors.Unavailable),
]


@pytest.mark.parametrize(("answer", "kind"), REFUSALS, ids=lambda v: getattr(v, "__name__", None))
def test_a_refusal_is_its_own_exception(serve: Serve, answer: Answer, kind: type[errors.ApiError]) -> None:
    server = serve(lambda request: answer)
    seconds = 0.2 if isinstance(answer, Hang) else 60.0  # a busy machine may be slow to answer
    with pytest.raises(errors.ApiError) as caught:
        apply.get(clients.for_url(server.url), PATH, timeouts=Timeouts(seconds, seconds))
    assert type(caught.value) is kind
    assert caught.value.message
    assert len(server.requests) == 1  # nothing is tried again down here


def test_no_server_is_unavailable_with_a_reason(serve: Serve) -> None:
    server = serve(lambda request: Reply({}))
    api = clients.for_url(server.url)
    server.stop()
    with pytest.raises(errors.Unavailable, match=r"no answer from the API server: .*refused"):
        apply.get(api, PATH)


@pytest.mark.parametrize(("text", "seconds"), [("3", 3.0), ("86400", 60.0), ("\u00b2", 0.0), ("soon", 0.0)])
def test_retry_after_is_kept_and_bounded(serve: Serve, text: str, seconds: float) -> None:
    server = serve(lambda request: Reply({"message": "slow down"}, status=429, headers={"Retry-After": text}))
    with pytest.raises(errors.Unavailable, match="slow down") as caught:
        apply.get(clients.for_url(server.url), PATH)
    assert caught.value.retry_after_seconds == seconds


def refusing(causes: list[dict[str, str]], code: int) -> Route:
    def route(request: Request) -> Answer:
        return status(code, "Invalid", message="no", details={"causes": causes})

    return route


def test_invalid_names_the_fields(serve: Serve) -> None:
    server = serve(refusing([{"field": "spec.x", "message": "must be set"}], 422))
    with pytest.raises(errors.Invalid) as caught:
        apply.create(clients.for_url(server.url), PATH, THING)
    assert caught.value.causes == (("spec.x", "must be set"),)
