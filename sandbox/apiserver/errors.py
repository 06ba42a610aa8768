"""Makes the Status objects with which a real API server answers errors.

Takes a reason and what it is about, and returns an `ApiError`, raised by any layer and turned into a Status by the
transport. Texts are those of Kubernetes 1.36, because kubectl prints them and people know them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sandbox.apiserver.objects import MISSING, Obj

if TYPE_CHECKING:
    from sandbox.apiserver.resources.resource import Resource


class ApiError(Exception):
    """An answer that is not a success; `status()` is the body."""

    def __init__(self, code: int, reason: str, message: str, *, details: Obj | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def status(self) -> Obj:
        body: Obj = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


_TYPE_TEXTS = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueTypeInvalid": "Invalid value",
    "FieldValueRequired": "Required value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
    "FieldValueNotFound": "Not found",
}
_WITHOUT_VALUE = {"FieldValueRequired", "FieldValueForbidden", "FieldValueTooLong"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldError:
    """One complaint about one field; `reason` is the cause's machine word."""

    path: str
    reason: str
    detail: str = ""
    value: Any = MISSING

    def body(self) -> str:
        text = _TYPE_TEXTS[self.reason]
        if self.value is not MISSING and self.reason not in _WITHOUT_VALUE:
            text += f": {json.dumps(self.value, separators=(',', ':'), ensure_ascii=False)}"
        return f"{text}: {self.detail}" if self.detail else text

    def cause(self) -> Obj:
        return {"reason": self.reason, "message": self.body(), "field": self.path or "<nil>"}


def wrong(path: str, value: Any, detail: str, kind: str = "Invalid") -> FieldError:
    return FieldError(path=path, reason=f"FieldValue{kind}", value=value, detail=detail)


def required(path: str, detail: str = "") -> FieldError:
    return FieldError(path=path, reason="FieldValueRequired", detail=detail)


def forbidden_field(path: str, detail: str) -> FieldError:
    return FieldError(path=path, reason="FieldValueForbidden", detail=detail)


def not_supported(path: str, value: Any, choices: Sequence[Any]) -> FieldError:
    return wrong(path, value, f"supported values: {', '.join(map(json.dumps, choices))}", "NotSupported")


def qualified(resource: "Resource") -> str:
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def details_of(resource: "Resource", name: str) -> Obj:
    """`details` of most errors: the kind is, by an old habit of Kubernetes, the plural."""
    return {"name": name, **({"group": resource.group} if resource.group else {}), "kind": resource.plural}


def not_found(resource: "Resource", name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{qualified(resource)} "{name}" not found', details=details_of(resource, name))


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", details={})


def already_exists(resource: "Resource", name: str) -> ApiError:
    message = f'{qualified(resource)} "{name}" already exists'
    return ApiError(409, "AlreadyExists", message, details=details_of(resource, name))


def conflict(resource: "Resource", name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {qualified(resource)} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=details_of(resource, name))


def stale(resource: "Resource", name: str) -> ApiError:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def failed_precondition(resource: "Resource", name: str, why: str) -> ApiError:
    """DELETE with a precondition that does not hold: this one error names the kind, not the plural."""
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = {**details_of(resource, name), "kind": resource.kind}
    return ApiError(409, "Conflict", f'Operation cannot be fulfilled on {kind} "{name}": {why}', details=details)


def invalid(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> ApiError:
    """422 with one cause per complaint."""
    texts = [f"{error.path or '<nil>'}: {error.body()}" for error in errors]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    qualified_kind = f"{kind}.{group}" if group else kind
    identity = {"name": name, "group": group, "kind": kind}
    details: Obj = {field: value for field, value in identity.items() if value}
    details["causes"] = [error.cause() for error in errors]
    return ApiError(422, "Invalid", f'{qualified_kind} "{name}" is invalid: {listed}', details=details)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def name_differs(found: str, wanted: str) -> ApiError:
    return bad_request(f"the name of the object ({found}) does not match the name on the URL ({wanted})")


def forbidden(resource: "Resource", name: str, why: str) -> ApiError:
    message = f'{qualified(resource)} "{name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", message, details=details_of(resource, name))


def method_not_allowed() -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, details={})


def unsupported_media_type(accepted: Sequence[str], remedy: str = "") -> ApiError:
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return ApiError(415, "UnsupportedMediaType", message + remedy)


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def too_large_resource_version(wanted: int, current: int) -> ApiError:
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return ApiError(504, "Timeout", message, details={"causes": causes, "retryAfterSeconds": 1})
