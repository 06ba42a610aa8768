"""Validates an object by its structural schema, in the words of a real API server.

Takes a pruned and defaulted object and, on an update, the stored one, and returns FieldErrors. Parts equal to the
stored ones are not checked again (ratcheting, as in Kubernetes 1.33 and newer). CEL rules are in `rules`.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from sandbox.apiserver.errors import FieldError, wrong
from sandbox.apiserver.objects import MISSING, Obj, json_type
from sandbox.apiserver.schema.structural import Schema

_BLOCKING = {
    "FieldValueRequired",
    "FieldValueNotSupported",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
}
NOT_CHECKED = FieldError(
    path="",
    reason="FieldValueInvalid",
    value=None,
    detail="some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)
_RFC3339_LENGTH = len("2026-01-01T00:00:00Z")


def blocks_rules(errors: list[FieldError]) -> bool:
    """Whether CEL rules would be evaluated against a value of the wrong shape."""
    return any(error.reason in _BLOCKING for error in errors)


def validate(value: Any, schema: Schema, old: Any = MISSING) -> list[FieldError]:
    return [*_walk(value, schema, "", old), *_duplicates(value, schema, "", old)]


def validate_status(obj: Obj, schema: Schema, old: Obj) -> list[FieldError]:
    """A write of the status alone: paths are whole, sentences speak of paths below status, as Kubernetes does."""
    if "status" not in obj or "status" not in schema.properties:
        return []
    found = validate(obj["status"], schema.properties["status"], old.get("status", MISSING))
    return [replace(error, path=_join("status", error.path) if error.path else "status") for error in found]


def _walk(value: Any, schema: Schema, path: str, old: Any) -> Iterator[FieldError]:
    if value is old or (old is not MISSING and value == old):
        return
    if value is None:
        if not schema.nullable and schema.type:
            yield _type_error(path, schema, "null")
        return
    found = json_type(value)
    if not _type_fits(value, found, schema):
        yield _type_error(path, schema, found)
        return
    yield from _enumerated(value, schema, path)
    if isinstance(value, dict):
        yield from _object(value, schema, path, old)
    elif isinstance(value, list):
        yield from _array(value, schema, path, old)
    elif isinstance(value, str):
        yield from _text(value, schema, path)
    elif not isinstance(value, bool):
        yield from _number(value, schema, path)


def _type_fits(value: Any, found: str, schema: Schema) -> bool:
    if schema.int_or_string:
        return found in ("integer", "string")
    if not schema.type or found == schema.type:
        return True
    if schema.type == "number":
        return found == "integer"
    return schema.type == "integer" and isinstance(value, float) and value.is_integer()


def _type_error(path: str, schema: Schema, found: str) -> FieldError:
    wanted = "integer,string" if schema.int_or_string else schema.type
    detail = f'{path} in body must be of type {wanted}: "{found}"'
    return FieldError(path=path, reason="FieldValueTypeInvalid", detail=detail, value=found)


def _enumerated(value: Any, schema: Schema, path: str) -> Iterator[FieldError]:
    allowed = schema.source.get("enum")
    if allowed is not None and value not in allowed:
        listed = ", ".join(json.dumps(choice) for choice in allowed)
        yield FieldError(path=path, reason="FieldValueNotSupported", detail=f"supported values: {listed}", value=value)


def _object(value: dict[str, Any], schema: Schema, path: str, old: Any) -> Iterator[FieldError]:
    before = old if isinstance(old, dict) else {}
    for name in schema.required:
        if name not in value:
            yield FieldError(path=_join(path, name), reason="FieldValueRequired")
    most, least = schema.source.get("maxProperties"), schema.source.get("minProperties")
    if most is not None and len(value) > most:
        yield _too_many(path, len(value), most)
    if least is not None and len(value) < least:
        yield _invalid(path, value, f"in body should have at least {least} properties")
    for name, member in sorted(value.items()):
        sub = schema.field(name)
        if sub is not None:
            inner = _join(path, name) if name in schema.properties else f"{path}.{name}"
            yield from _walk(member, sub, inner, before.get(name, MISSING))


def _array(value: list[Any], schema: Schema, path: str, old: Any) -> Iterator[FieldError]:
    most, least = schema.source.get("maxItems"), schema.source.get("minItems")
    if most is not None and len(value) > most:
        yield _too_many(path, len(value), most)
    if least is not None and len(value) < least:
        yield _invalid(path, len(value), f"in body should have at least {least} items")
    if schema.items is None:
        return
    correlated = old if schema.list_type == "map" and isinstance(old, list) else ()
    before = {item_key(item, schema): item for item in correlated}
    for index, item in enumerate(value):
        found = before.get(item_key(item, schema), MISSING)
        yield from _walk(item, schema.items, f"{path}[{index}]", found)


def _text(value: str, schema: Schema, path: str) -> Iterator[FieldError]:
    most, least = schema.source.get("maxLength"), schema.source.get("minLength")
    if most is not None and len(value) > most:
        yield FieldError(path=path, reason="FieldValueTooLong", detail=f"may not be more than {most} bytes")
        return
    if least is not None and len(value) < least:
        yield _invalid(path, value, f"in body should be at least {least} chars long")
    if schema.pattern is not None and not schema.pattern.search(value):
        yield _invalid(path, value, f"in body should match '{schema.source['pattern']}'")
    if schema.source.get("format") == "date-time" and not _is_rfc3339(value):
        yield _invalid(path, value, f"in body must be of type date-time: {json.dumps(value)}")


def _is_rfc3339(value: str) -> bool:
    try:
        return datetime.fromisoformat(value).tzinfo is not None and len(value) >= _RFC3339_LENGTH and value[10] in "Tt"
    except ValueError:
        return False


def _number(value: float, schema: Schema, path: str) -> Iterator[FieldError]:
    source = schema.source
    if source.get("format") == "int32" and not -(2**31) <= value < 2**31:
        detail = f"Checked value must be of type integer with format int32 in {path}"
        yield wrong("", "", detail)
    low, high = source.get("minimum"), source.get("maximum")
    if low is not None and value < low:
        yield _invalid(path, value, f"in body should be greater than or equal to {low}")
    if high is not None and value > high:
        yield _invalid(path, value, f"in body should be less than or equal to {high}")


def item_key(item: Any, schema: Schema) -> str:
    """The identity of an item of a list map, as text; defaults of absent keys count."""
    if not isinstance(item, dict):
        return json.dumps(item, sort_keys=True)
    return json.dumps(item_keys(item, schema), sort_keys=True, separators=(",", ":"))


def item_keys(item: dict[str, Any], schema: Schema) -> dict[str, Any]:
    keys: dict[str, Any] = {}
    for name in schema.list_keys:
        sub = schema.items.field(name) if schema.items is not None else None
        fallback = sub.default if sub is not None and sub.default is not MISSING else None
        keys[name] = item.get(name, fallback)
    return keys


def _duplicates(value: Any, schema: Schema, path: str, old: Any) -> Iterator[FieldError]:
    """Sets and list maps hold each member once."""
    if value is old:
        return
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for name, member in value.items():
            sub = schema.field(name)
            if sub is not None:
                yield from _duplicates(member, sub, _join(path, name), before.get(name, MISSING))
    elif isinstance(value, list) and schema.items is not None:
        seen: set[str] = set()
        for index, item in enumerate(value):
            if schema.list_type in ("set", "map"):
                key = item_key(item, schema) if schema.list_type == "map" else json.dumps(item, sort_keys=True)
                if key in seen:
                    yield FieldError(path=f"{path}[{index}]", reason="FieldValueDuplicate", value=json.loads(key))
                seen.add(key)
            yield from _duplicates(item, schema.items, f"{path}[{index}]", MISSING)


def _invalid(path: str, value: Any, complaint: str) -> FieldError:
    return wrong(path, value, f"{path} {complaint}")


def _too_many(path: str, found: int, most: int) -> FieldError:
    return FieldError(path=path, reason="FieldValueTooMany", detail=f"must have at most {most} items", value=found)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
