"""Says whether the person whose token a request carries has a right in the cluster.

Takes the header Authorization, and asks the API server whose token it is (TokenReview) and whether that user has the
right (SubjectAccessReview). One request at a time, since strangers may send any number of them. Never keeps a token,
and what cannot be asked is refused.
"""

import threading
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from kubernetes.client import ApiClient

from kube import apply
from kube.errors import ApiError
from kube.serve import Page
from kube.transport import Timeouts

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
SCHEME = "bearer"
BRIEFLY = Timeouts(connect_seconds=1.0, read_seconds=2.0)


class Access:
    """`right`: the resourceAttributes that a user must have; `words`: the same for people."""

    def __init__(self, api: ApiClient, right: Mapping[str, str], words: str) -> None:
        self._api, self._right, self._words = api, dict(right), words
        self._lock = threading.Lock()

    def refusal(self, authorization: str) -> Page | None:
        """None for who has the right."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != SCHEME or not token.strip():
            need = f"send the header Authorization: Bearer TOKEN, of a user who may {self._words}"
            return _page(HTTPStatus.UNAUTHORIZED, need)
        try:
            with self._lock:
                return self._judge(token.strip())
        except ApiError as error:
            return _page(HTTPStatus.SERVICE_UNAVAILABLE, f"the API server was asked about this token: {error}")

    def _judge(self, token: str) -> Page | None:
        found = self._review(TOKEN_REVIEWS, "authentication.k8s.io/v1", "TokenReview", {"token": token})
        user = found.get("user") or {}
        if found.get("authenticated") is not True or not user.get("username"):
            return _page(HTTPStatus.UNAUTHORIZED, "the API server does not know this token")
        asked = {"user": user["username"], "resourceAttributes": self._right}
        asked |= {field: user[field] for field in ("uid", "groups", "extra") if user.get(field)}
        found = self._review(ACCESS_REVIEWS, "authorization.k8s.io/v1", "SubjectAccessReview", asked)
        if found.get("allowed") is not True:
            return _page(HTTPStatus.FORBIDDEN, f"{user['username']} may not {self._words}")
        return None

    def _review(self, path: str, version: str, kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        body = {"apiVersion": version, "kind": kind, "spec": spec}
        return apply.create(self._api, path, body, timeouts=BRIEFLY).get("status") or {}


def _page(status: HTTPStatus, sentence: str) -> Page:
    return Page(body=f"{sentence}\n".encode(), status=status)
