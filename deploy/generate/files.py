"""The files that are made from the chart's values: values.yaml, values.schema.json and docs/values.md, as texts.

Takes the model of the values and returns each file. Comments, types and rows all come from the fields' own texts.
Nothing here reads or writes a file.
"""

import json
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from deploy.generate.values import AgentSettings, ControllerSettings, Values
from kube.settings import Section

WIDTH = 118
RENEW = "python -m deploy.generate --write"
SETTINGS = (ControllerSettings, AgentSettings)
"""Models of which a chart's user gives only what differs from the program's own defaults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One value, or a group of values where `group` is given."""

    path: tuple[str, ...]
    default: Any
    text: str
    group: type[Section] | None


def walk(model: type[Section], path: tuple[str, ...] = (), default: Section | None = None) -> Iterator[Value]:
    """Groups and values in the order of the file, a group before its values."""
    default = model() if default is None else default
    for name, field in model.model_fields.items():
        held = getattr(default, name)
        group = type(held) if isinstance(held, Section) else None
        here = (*path, str(field.alias))
        yield Value(path=here, default=_plain(held), text=" ".join((field.description or "").split()), group=group)
        if group is not None:
            yield from walk(group, here, held)


def values_yaml() -> str:
    """The chart's default values, each below its meaning."""
    lines = [
        f"# The values of the chart and their defaults. Made by `{RENEW}` from deploy/generate/values.py.",
        "# values.schema.json refuses unknown keys and wrong values by name. The same as a table: docs/values.md.",
    ]
    for value in walk(Values):
        if any(_is_settings(value.path, group) for group in SETTINGS):
            continue
        indent = "  " * (len(value.path) - 1)
        if len(value.path) == 1:
            lines.append("")
        lines += textwrap.wrap(value.text, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")
        if value.group in SETTINGS:
            lines.append(f"{indent}{value.path[-1]}: {{}}")
        elif value.group is not None:
            lines.append(f"{indent}{value.path[-1]}:")
        else:
            lines += _entry(value, indent)
    return "\n".join(lines) + "\n"


def schema_json() -> str:
    """What Helm checks values against; `global` is what Helm adds to the values of a subchart."""
    schema = Values.model_json_schema(by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["properties"]["global"] = {"type": "object", "description": "Helm's own; nothing here reads it."}
    return json.dumps(_without_titles(schema) | {"title": "gpuplan"}, indent=1, sort_keys=True) + "\n"


def values_page() -> str:
    """docs/values.md."""
    lines = [
        "# Values of the Helm chart",
        "",
        "What `helm install` takes. Unknown keys and wrong values are refused by name.",
        "Lists replace the default, maps are merged with it. `controller.settings` and `agent.settings` show",
        "the defaults of the programs, and are empty in the chart.",
        "",
        "| value | type | default | meaning |",
        "|---|---|---|---|",
    ]
    types = _types()
    for value in walk(Values):
        if value.group is None:
            default = _inline(value.default)
            meaning = value.text.replace("|", "\\|")
            lines.append(f"| `{'.'.join(value.path)}` | {types[value.path]} | `{default}` | {meaning} |")
    return "\n".join([*lines, "", f"Made by `{RENEW}`. Do not edit."]) + "\n"


def _is_settings(path: tuple[str, ...], model: type[Section]) -> bool:
    """Is it one of the program's settings, which values.yaml does not list?"""
    owner = {ControllerSettings: "controller", AgentSettings: "agent"}[model]
    return len(path) > 2 and path[:2] == (owner, "settings")


def _plain(held: Any) -> Any:
    """As YAML has it: without keys that are not given, whole numbers without a fraction."""
    if isinstance(held, Section):
        return _plain(held.model_dump(by_alias=True, mode="json", exclude_none=True))
    if isinstance(held, dict):
        return {key: _plain(entry) for key, entry in held.items()}
    if isinstance(held, (list, tuple)):
        return [_plain(entry) for entry in held]
    if isinstance(held, float) and held.is_integer():
        return int(held)
    return held if held is None or isinstance(held, (str, int, float)) else str(held)


def _entry(value: Value, indent: str) -> list[str]:
    """The lines of one value: a list of maps has a line for each."""
    key = f"{indent}{value.path[-1]}:"
    if isinstance(value.default, list) and any(isinstance(entry, dict) for entry in value.default):
        return [key, *(f"{indent}  - {_inline(entry)}" for entry in value.default)]
    return [f"{key} {_inline(value.default)}"]


def _inline(content: Any) -> str:
    text = yaml.safe_dump(content, sort_keys=False, default_flow_style=True, width=10_000)
    return text.strip().removesuffix("\n...")


def _types() -> dict[tuple[str, ...], str]:
    """The kind of each value, in words."""
    schema = Values.model_json_schema(by_alias=True)
    found: dict[tuple[str, ...], str] = {}

    def visit(body: dict[str, Any], path: tuple[str, ...]) -> None:
        body = schema["$defs"][body["$ref"].rpartition("/")[2]] if "$ref" in body else body
        found[path] = _kind(body)
        for key, entry in body.get("properties", {}).items():
            visit(entry, (*path, key))

    visit(schema, ())
    return found


def _kind(body: dict[str, Any]) -> str:
    if "anyOf" in body:
        return " or ".join(dict.fromkeys(_kind(each) for each in body["anyOf"] if each.get("type") != "null"))
    kinds = {"object": "map", "array": "list", "integer": "whole number", "string": "text", "boolean": "true or false"}
    return kinds.get(str(body.get("type")), str(body.get("type")))


def _without_titles(body: Any) -> Any:
    if isinstance(body, dict):
        return {
            key: _without_titles(entry)
            for key, entry in body.items()
            if not (key == "title" and isinstance(entry, str)) and key != "default"
        }
    return [_without_titles(entry) for entry in body] if isinstance(body, list) else body
