"""Sends one HTTP request through the official client: its configuration, credentials, TLS and connection pool.

Takes a method, a path below the server's root, a query and a JSON value; returns the raw answer or raises one of
`kube.errors`. Every request has a timeout; nothing is retried here, because only the caller knows whether that is safe.
Decodes no object.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, Unpack

import urllib3
from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException

from kube import errors

Query = Mapping[str, str | int | bool]
CONNECT_SECONDS = 5.0
READ_SECONDS = 30.0
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long to wait for the connection, and for the next bytes of the answer."""

    connect_seconds: float = CONNECT_SECONDS
    read_seconds: float = READ_SECONDS


DEFAULT_TIMEOUTS = Timeouts()


class Options(TypedDict, total=False):
    """What `open_response` takes by name."""

    query: Query | None
    body: Any
    content_type: str
    timeouts: Timeouts


def request(api: ApiClient, method: str, path: str, **options: Unpack[Options]) -> bytes:
    """The body of a 2xx answer."""
    return read_all(open_response(api, method, path, **options))


def open_response(
    api: ApiClient,
    method: str,
    path: str,
    *,
    query: Query | None = None,
    body: Any = None,
    content_type: str = JSON,
    timeouts: Timeouts = DEFAULT_TIMEOUTS,
) -> urllib3.HTTPResponse:
    """A 2xx answer whose body is still to be read; the caller closes or drains it."""
    headers = {"Accept": JSON}
    if body is not None:
        headers["Content-Type"] = content_type
    parameters = [(name, _query_text(value)) for name, value in sorted((query or {}).items())]
    call = api.param_serialize(
        method, path, query_params=parameters, header_params=headers, body=body, auth_settings=["BearerToken"]
    )
    timeout = (timeouts.connect_seconds, timeouts.read_seconds)
    try:
        response: urllib3.HTTPResponse = api.call_api(*call, _request_timeout=timeout).response
    except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
        raise _no_answer(error) from error
    if 200 <= response.status <= 299:
        return response
    retry_after = response.headers.get("Retry-After")
    raise errors.from_answer(response.status, read_all(response), retry_after)


def read_all(response: urllib3.HTTPResponse) -> bytes:
    try:
        data: bytes = response.data
    except (urllib3.exceptions.HTTPError, OSError) as error:
        response.close()
        raise _no_answer(error) from error
    response.release_conn()
    return data


def _no_answer(error: Exception) -> errors.Unavailable:
    cause = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) and error.reason else error
    return errors.Unavailable(f"no answer from the API server: {cause}", reason=type(cause).__name__)


def _query_text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
