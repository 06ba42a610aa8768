"""Reads a daemon's settings: one YAML file with camelCase keys, strictly into a frozen pydantic model.

Takes a model (a subclass of `Section`) and the path of a file, returns the model. Everything that is wrong is one
`SettingsError` whose lines each name the key, the value and what would be right; an unknown key is never ignored,
because a misspelt one would silently leave a default in force. Reads no environment and starts nothing.
"""

import difflib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from kube.yaml_text import NotYaml, path_of, read_yaml_file


class SettingsError(ValueError):
    """The settings cannot be used; the text is meant for the person who wrote them."""


class Section(BaseModel):
    """The whole file, or a mapping in it; each field is documented by the text below it."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, use_attribute_docstrings=True)


Settings = TypeVar("Settings", bound=Section)


def load(model: type[Settings], path: Path) -> Settings:
    """Read the file; raises SettingsError with the file's name in front of every sentence."""
    content = read_yaml_file(path)
    if isinstance(content, NotYaml):
        raise SettingsError(f"{path}: {content.sentence}")
    try:
        return read(model, content if content is not None else {})
    except SettingsError as error:
        raise SettingsError("\n".join(f"{path}: {line}" for line in str(error).splitlines())) from error


def read(model: type[Settings], content: object) -> Settings:
    """Check decoded YAML; raises SettingsError, one line per problem."""
    if not isinstance(content, dict):
        raise SettingsError(f"must be a mapping of keys to values, not {_kind(content)}: write key: value lines")
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise SettingsError("\n".join(_sentence(model, detail) for detail in error.errors())) from error


def _sentence(model: type[Section], detail: ErrorDetails) -> str:
    location = [str(part) for part in detail["loc"]]
    where = path_of(detail["loc"])
    if detail["type"] == "extra_forbidden":
        known = _keys(_section(model, location[:-1]))
        close = difflib.get_close_matches(location[-1], known, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        return f"unknown key {where}{hint}; known keys are {', '.join(known)}"
    if detail["type"] == "value_error":
        return detail["msg"].removeprefix("Value error, ")
    field = _field(model, location)
    default = f"; the default is {_shown(field.default)}" if field is not None and not field.is_required() else ""
    complaint = detail["msg"][0].lower() + detail["msg"][1:]
    return f"{where} is {detail['input']!r}: {complaint}{default}"


def _keys(model: type[BaseModel]) -> list[str]:
    return sorted(str(field.alias) for field in model.model_fields.values())


def _section(model: type[BaseModel], location: list[str]) -> type[BaseModel]:
    """The model of the mapping at this place of the file."""
    for key in location:
        found = next((field.annotation for field in model.model_fields.values() if field.alias == key), None)
        if not (isinstance(found, type) and issubclass(found, BaseModel)):
            break
        model = found
    return model


def _field(model: type[BaseModel], location: list[str]) -> FieldInfo | None:
    """The innermost field on the way to this place: an entry of a list is explained by the list's field."""
    field: FieldInfo | None = None
    for key in location:
        found = next((each for each in model.model_fields.values() if each.alias == key), None)
        if found is None:
            break
        field = found
        model = _section(model, [key])
    return field


def _shown(default: Any) -> str:
    if isinstance(default, BaseModel):
        return "a mapping with " + ", ".join(_keys(type(default)))
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, tuple):
        return f"[{', '.join(map(str, default))}]"
    return f"{default:g}" if isinstance(default, float) else str(default)


def _kind(content: object) -> str:
    if isinstance(content, list):
        return "a list"
    return "a text" if isinstance(content, str) else type(content).__name__
