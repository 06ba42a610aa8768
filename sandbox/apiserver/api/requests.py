"""Describes a request and its reply, without any HTTP library.

Takes method, path, query, headers and body, and returns what is addressed (`Route`) and how the client wants it shown.
Must never read the store.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sandbox.apiserver.errors import FieldError, bad_request, invalid, not_supported, required, unsupported_media_type
from sandbox.apiserver.lifecycle.context import WriteOptions
from sandbox.apiserver.objects import Obj, encode

_TRUE: Final = ("true", "1", "True")
LONGEST_MANAGER: Final = 128
BODY_TYPES: Final = ("application/json",)
PROTOBUF_MAGIC: Final = b"k8s\0"
INSTEAD_OF_PROTOBUF: Final = (
    "; the sandbox reads no protobuf, which kubectl create sends: "
    "use kubectl create ... --dry-run=client -o yaml | kubectl apply -f -"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request; header names are lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""

    def flag(self, name: str) -> bool:
        return self.query.get(name, "") in _TRUE

    def number(self, name: str) -> int:
        text = self.query.get(name) or "0"
        if not text.lstrip("-").isdigit():
            raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
        return int(text)

    @property
    def accept(self) -> str:
        return self.headers.get("accept", "")

    @property
    def agent(self) -> str:
        """What the client calls itself: the default field manager."""
        return self.headers.get("user-agent", "unknown").split("/")[0][:LONGEST_MANAGER]

    @property
    def is_watch(self) -> bool:
        return self.method == "GET" and self.flag("watch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer."""

    code: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    warnings: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


def json_reply(code: int, value: Any, warnings: list[str] | None = None) -> Reply:
    return Reply(code=code, body=encode(value), warnings=tuple(warnings or ()))


def wants_table(accept: str) -> bool:
    """By the first form in the Accept header that is known here; kubectl lists several."""
    for offer in accept.split(","):
        parts = {part.strip() for part in offer.split(";")}
        table = "as=Table" in parts and "v=v1" in parts
        if table or ("application/json" in parts and not any(part.startswith("as=") for part in parts)):
            return table
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The parts of a resource path."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


def parse_route(parts: list[str]) -> Route:
    """`parts` of /api/v1/… or /apis/group/version/…, at least up to the plural."""
    group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (group == "" and rest[2] == "status"):
        namespace, rest = rest[1], rest[2:]
    return Route(
        group=group,
        version=version,
        plural=rest[0],
        namespace=namespace,
        name=rest[1] if len(rest) > 1 else "",
        subresource="/".join(rest[2:]),
    )


def decode_body(request: Request) -> Any:
    """The body as an object."""
    body = request.body
    content_type = request.headers.get("content-type", "application/json").partition(";")[0].strip()
    if body.startswith(PROTOBUF_MAGIC) or content_type not in BODY_TYPES:
        raise unsupported_media_type(BODY_TYPES, INSTEAD_OF_PROTOBUF if body.startswith(PROTOBUF_MAGIC) else "")
    if not body.strip():
        return {}
    try:
        return json.loads(body)
    except ValueError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error


def write_options(request: Request, kind: str) -> WriteOptions:
    """The write options of the query; `kind` is CreateOptions, UpdateOptions or PatchOptions."""
    query = request.query
    problems: list[FieldError] = []
    for name, allowed in (("dryRun", ("All",)), ("fieldValidation", ("", "Ignore", "Strict", "Warn"))):
        value = query.get(name)
        if value and value not in allowed:
            problems.append(not_supported(name, [value] if name == "dryRun" else value, allowed))
    manager = query.get("fieldManager", "")
    if len(manager) > LONGEST_MANAGER:
        detail = f"may not be more than {LONGEST_MANAGER} bytes"
        problems.append(FieldError(path="fieldManager", reason="FieldValueTooLong", detail=detail))
    applies = request.headers.get("content-type", "").startswith("application/apply-patch")
    if applies and not manager:
        problems.append(required("fieldManager", "is required for apply patch"))
    if problems:
        raise invalid("meta.k8s.io", kind, "", problems)
    return WriteOptions(
        manager=manager or request.agent,
        dry_run=bool(query.get("dryRun")),
        field_validation=query.get("fieldValidation") or "Warn",
        force=request.flag("force"),
    )


def delete_options(request: Request) -> Obj:
    """The body of a DELETE, completed by the query."""
    body = decode_body(request)
    options: Obj = dict(body) if isinstance(body, dict) else {}
    if options.get("gracePeriodSeconds") is None and "gracePeriodSeconds" in request.query:
        options["gracePeriodSeconds"] = request.number("gracePeriodSeconds")
    return options
