"""Who may read a page: the API server is asked, and no client is let in where it does not answer."""

from collections.abc import Iterator
from typing import Any

import pytest

from kube import clients
from kube.access import ACCESS_REVIEWS, TOKEN_REVIEWS, Access
from tests.kube.fake_api import Answer, FakeApi, Reply, Request, status

RIGHT = {"verb": "list", "resource": "pods"}
ADA = {"username": "ada", "uid": "1", "groups": ["devs"], "extra": {"scopes": ["all"]}}


class Cluster:
    """Ada may, Bob may not; other tokens are unknown."""

    def __init__(self) -> None:
        self.users: dict[str, Any] = {"t-ada": ADA, "t-bob": {"username": "bob"}, "t-odd": {}}
        self.down: str = ""

    def __call__(self, request: Request) -> Answer:
        if request.path == self.down:
            return status(500, "InternalError")
        spec = request.body["spec"]
        if request.path == TOKEN_REVIEWS:
            user = self.users.get(spec["token"])
            return Reply({"status": {"authenticated": user is not None, "user": user or {}}}, status=201)
        assert request.path == ACCESS_REVIEWS
        allowed = spec == {
            "user": "ada", "uid": "1", "groups": ["devs"], "extra": {"scopes": ["all"]}, "resourceAttributes": RIGHT,
        }  # fmt: skip
        return Reply({"status": {"allowed": allowed}}, status=201)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def access(cluster: Cluster) -> Iterator[Access]:
    api = FakeApi(cluster)
    yield Access(clients.for_url(api.url), RIGHT, "list pods")
    api.stop()


@pytest.mark.parametrize(
    ("header", "code", "words"),
    [
        ("", 401, "send the header Authorization: Bearer TOKEN, of a user who may list pods"),
        ("Basic YTpi", 401, "send the header"),
        ("Bearer ", 401, "send the header"),
        ("Bearer stranger", 401, "does not know this token"),
        ("Bearer t-odd", 401, "does not know this token"),
        ("Bearer t-bob", 403, "bob may not list pods"),
    ],
)
def test_others_are_refused_with_a_sentence(access: Access, header: str, code: int, words: str) -> None:
    page = access.refusal(header)
    assert page is not None
    assert (page.status, words in page.body.decode()) == (code, True)
    assert "stranger" not in page.body.decode()


@pytest.mark.parametrize("header", ["Bearer t-ada", "bearer t-ada "])
def test_who_has_the_right_is_let_in(access: Access, header: str) -> None:
    assert access.refusal(header) is None


@pytest.mark.parametrize("down", [TOKEN_REVIEWS, ACCESS_REVIEWS])
def test_what_cannot_be_asked_is_refused(access: Access, cluster: Cluster, down: str) -> None:
    cluster.down = down
    page = access.refusal("Bearer t-ada")
    assert page is not None
    assert page.status == 503
