"""What an API server can refuse, as exceptions that show what to do next.

Takes an HTTP answer or the transport's own exception, returns one of these classes; `message` is the server's sentence,
unchanged, for people. The class shows whether a retry can help: `Unavailable` yes, `Conflict` after reading again, the
others only after something else has changed. Sends nothing.
"""
# ruff: noqa: N818 - the API's own reasons are the names; they are read as errors.NotFound

import json
from collections.abc import Mapping
from typing import Any

LONGEST_RETRY_AFTER_SECONDS = 60.0
"""A proxy may request an hour; a withdrawal that waits for the Node's taint must not."""
PATCH_REJECTED = "the server rejected our request due to an error in our request"


class ApiError(Exception):
    """The request got an answer other than 2xx, or none (status 0)."""

    def __init__(self, message: str, *, status: int = 0, reason: str = "", body: Mapping[str, Any] | None = None):
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.body: Mapping[str, Any] = body or {}


class BadRequest(ApiError):
    """400, 405, 406, 415: the request itself is wrong for this server."""


class Forbidden(ApiError):
    """403: RBAC or an admission policy forbids it."""


class NotFound(ApiError):
    """404: no such object, or no such kind."""


class Conflict(ApiError):
    """409: read again; resourceVersion or uid is stale, or a server-side apply without force met another owner."""


class AlreadyExists(Conflict):
    """409 on a create."""


class Gone(ApiError):
    """410: the resourceVersion or the continue token is too old; list again."""


class Invalid(ApiError):
    """422: schema, CEL rule or JSON patch test; `causes` pairs fields with sentences."""

    @property
    def causes(self) -> tuple[tuple[str, str], ...]:
        details = self.body.get("details")
        causes = details.get("causes") if isinstance(details, Mapping) else None
        found = [cause for cause in causes if isinstance(cause, Mapping)] if isinstance(causes, list) else []
        return tuple((str(cause.get("field", "")), str(cause.get("message", ""))) for cause in found)

    @property
    def other_object(self) -> bool:
        """A patch or apply named a uid, and another object of that name is there now (a PUT gets a Conflict)."""
        return any(field == "metadata.uid" for field, _ in self.causes)

    @property
    def test_failed(self) -> bool:
        """A JSON patch, such as its `test`, does not fit the object; the server reports no details."""
        return not self.causes and self.message == PATCH_REJECTED


class Unavailable(ApiError):
    """429, 5xx, a time-out or no connection: the same request may succeed later.

    A write that ended so may have been carried out.
    """

    retry_after_seconds: float = 0.0


def is_stale(error: ApiError) -> bool:
    """The request named a version or a uid that is no longer there: read the object again, nothing is wrong."""
    return isinstance(error, Conflict) or (isinstance(error, Invalid) and (error.other_object or error.test_failed))


def retry_after(error: ApiError) -> float:
    """Seconds that the server requests to wait, at most `LONGEST_RETRY_AFTER_SECONDS`; 0 without such a request."""
    return error.retry_after_seconds if isinstance(error, Unavailable) else 0.0


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    403: Forbidden,
    404: NotFound,
    405: BadRequest,
    406: BadRequest,
    409: Conflict,
    410: Gone,
    415: BadRequest,
    422: Invalid,
    429: Unavailable,
}


def from_status(status: int, body: Mapping[str, Any]) -> ApiError:
    """The exception for a `Status` object, be it an HTTP body or the object of an ERROR watch event."""
    reason = str(body.get("reason", ""))
    kind = Unavailable if status >= 500 else _BY_STATUS.get(status, ApiError)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    message = str(body.get("message", "")) or f"the API server answered {status}"
    return kind(message, status=status, reason=reason, body=body)


def from_answer(status: int, text: bytes, retry_after: str | None = None) -> ApiError:
    """The exception for an HTTP answer; a body that is no `Status` becomes the message."""
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        body = {"message": text.decode("utf-8", "replace").strip()[:500]}
    error = from_status(status, body)
    if isinstance(error, Unavailable) and retry_after is not None and retry_after.isdecimal():
        error.retry_after_seconds = min(float(retry_after), LONGEST_RETRY_AFTER_SECONDS)
    return error
