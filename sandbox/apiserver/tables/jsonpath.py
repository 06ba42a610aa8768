"""The JSONPath of printer columns: members, indexes, `[*]` and equality filters.

Comes in: a path such as `.status.conditions[?(@.type=="Ready")].status`. Goes out: a function that finds all matches in
an object. What columns do not use (slices, unions, recursion) is refused when the path is compiled.
"""

import json
import re
from collections.abc import Callable
from typing import Any

Finder = Callable[[Any], list[Any]]
_Step = Callable[[list[Any]], list[Any]]

_TOKEN = re.compile(
    r"""\.(?P<member>(?:\\.|[^.\[\]\\])+)
      | \[['"](?P<quoted>[^'"]+)['"]\]
      | \[(?P<index>-?\d+|\*)\]
      | \[\?\(@(?P<filter>\.[^=!<>]+?)\s*(?P<operator>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[^)]+?)\s*\)\]""",
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
    if token["index"] is not None:
        return _by_index(token["index"])
    if token["filter"] is not None:
        return _by_filter(compile_path(token["filter"]), token["operator"] == "==", _literal(token["value"]))
    name = token["quoted"] or re.sub(r"\\(.)", r"\1", token["member"])
    return lambda values: [value[name] for value in values if isinstance(value, dict) and name in value]


def _by_index(index: str) -> _Step:
    def step(values: list[Any]) -> list[Any]:
        lists = [value for value in values if isinstance(value, list)]
        if index == "*":
            return [item for value in lists for item in value]
        place = int(index)
        return [value[place] for value in lists if -len(value) <= place < len(value)]

    return step


def _by_filter(find: Finder, equal: bool, wanted: Any) -> _Step:
    def step(values: list[Any]) -> list[Any]:
        items = [item for value in values if isinstance(value, list) for item in value]
        return [item for item in items if any((found == wanted) is equal for found in find(item))]

    return step


def _literal(text: str) -> Any:
    if text[0] in "\"'":
        return text[1:-1]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
