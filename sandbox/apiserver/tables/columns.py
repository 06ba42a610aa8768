"""Makes the columns of `kubectl get`: one `Column`, ages, JSONPath, and the printer columns of custom resources.

Takes the printer columns of a CRD version and returns table columns. A JSONPath has members, and filters by equality
with a text; any other form (indexes, slices, unions, recursion) is refused when it is compiled. A value that is absent
or of another type than the column's prints as blank. Ages have the steps of Kubernetes' HumanDuration. Must never fail
on an object.
"""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sandbox.apiserver.objects import Obj, meta


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """`cell` gives the value; None prints as blank."""

    name: str
    cell: Callable[[Obj], Any]
    type: str = "string"
    format: str = ""
    priority: int = 0


UNKNOWN = "<unknown>"
INVALID = "<invalid>"


def age(stamp: str | None, now: datetime) -> str:
    """The time since an RFC 3339 stamp."""
    if not stamp:
        return UNKNOWN
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return INVALID
    if moment.tzinfo is None:
        return INVALID
    return human_duration((now - moment).total_seconds())


def human_duration(elapsed_seconds: float) -> str:
    seconds = int(elapsed_seconds)
    if seconds < -1:
        return INVALID
    if seconds < 120:
        return f"{max(seconds, 0)}s"
    minutes = seconds // 60
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    hours = minutes // 60
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    return f"{hours // 24}d"


def _two(large: int, unit: str, small: int, small_unit: str) -> str:
    return f"{large}{unit}{small}{small_unit}" if small else f"{large}{unit}"


Finder = Callable[[Any], list[Any]]
_Step = Callable[[list[Any]], list[Any]]

_TOKEN = re.compile(
    r"""\.(?P<member>(?:\\.|[^.\[\]\\])+)
      | \[\?\(@(?P<filter>\.[^=!<>]+?)\s*==\s*["'](?P<value>[^"']*)["']\s*\)\]""",
    re.VERBOSE,
)


def compile_path(path: str) -> Finder:
    steps: list[_Step] = []
    position = 0
    text = path.strip().removeprefix("{").removesuffix("}").removeprefix("$")
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise ValueError(f"JSONPath {path!r}: cannot read {text[position:]!r}")
        position = token.end()
        steps.append(_step(token))

    def find(value: Any) -> list[Any]:
        found = [value]
        for step in steps:
            found = step(found)
        return found

    return find


def _step(token: re.Match[str]) -> _Step:
    if token["filter"] is not None:
        return _by_filter(compile_path(token["filter"]), token["value"])
    name = re.sub(r"\\(.)", r"\1", token["member"])
    return lambda values: [value[name] for value in values if isinstance(value, dict) and name in value]


def _by_filter(find: Finder, wanted: str) -> _Step:
    def step(values: list[Any]) -> list[Any]:
        items = [item for value in values if isinstance(value, list) for item in value]
        return [item for item in items if wanted in find(item)]

    return step


def object_age(obj: Obj) -> str:
    return age(meta(obj).get("creationTimestamp"), datetime.now(UTC))


NAME = Column(name="Name", format="name", cell=lambda obj: meta(obj).get("name", ""))
AGE = Column(name="Age", cell=object_age)


def columns_of(printer_columns: Iterable[Obj] | None) -> tuple[Column, ...]:
    if not printer_columns:
        return (NAME, AGE)
    return (NAME, *(_column(column) for column in printer_columns))


def _column(column: Obj) -> Column:
    kind = column.get("type", "string")
    return Column(
        name=column["name"],
        type=kind,
        format=column.get("format", ""),
        priority=column.get("priority", 0),
        cell=_cell(compile_path(column["jsonPath"]), kind),
    )


def _cell(find: Finder, kind: str) -> Callable[[Obj], Any]:
    def cell(obj: Obj) -> Any:
        found = find(obj)
        return _shown(found[0], kind) if found and found[0] is not None else None

    return cell


def _shown(value: Any, kind: str) -> Any:
    if kind == "string":
        if isinstance(value, bool):
            return str(value).lower()
        return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    if kind == "date":
        return age(value, datetime.now(UTC)) if isinstance(value, str) else INVALID
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return int(value) if kind == "integer" else value
