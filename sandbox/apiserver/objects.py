"""JSON objects as the API server holds them, and the few things every module does with them.

Objects are plain dictionaries and are never changed in place once stored: a write makes a new dictionary and shares
the parts that did not change, so that identity (`is`) is a cheap proof of "unchanged". Must never know about kinds.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

Obj = dict[str, Any]


MISSING: Final[Any] = object()
"""No value at all, where None would be JSON's null."""


OF_THE_SERVER: Final = (
    *("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"),
    "selfLink",
)
"""Fields of metadata that no client sets."""

_JSON_TYPES: Final[dict[type, str]] = {
    bool: "boolean",
    str: "string",
    int: "integer",
    float: "number",
    dict: "object",
    list: "array",
    type(None): "null",
}


def json_type(value: Any) -> str:
    """The name that JSON schemas have for the type of a decoded value."""
    return _JSON_TYPES.get(type(value), "null")


def encode(value: Any) -> bytes:
    """JSON as it goes over the wire: compact, UTF-8."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def dig(value: Any, *keys: str) -> Any:
    """The value below `keys`, or None where any step is absent or not an object."""
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def mappings(value: Any) -> Iterator[Obj]:
    """The members of a list that are objects; nothing for anything else."""
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def meta(obj: Obj) -> Obj:
    """The metadata of an object; an empty dictionary where it has none."""
    found = obj.get("metadata")
    return found if isinstance(found, dict) else {}
