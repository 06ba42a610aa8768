"""Evaluates the JSONPath of printer columns: members, and filters by equality with a text.

Takes a path such as `.status.conditions[?(@.type=="Ready")].status` and returns a function that finds all matches in an
object. Any other form (indexes, slices, unions, recursion) is refused when the path is compiled.
"""

import re
from collections.abc import Callable
from typing import Any

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
