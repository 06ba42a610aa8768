"""Turns an object that cannot be understood into a value with the reason.

Every parser of this package runs inside `readable`, so that one broken object never stops a watch. The values and the
helpers here are shared by the parsers; nothing here knows a kind of object.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from pydantic import ValidationError

from controller.model.views import PodView
from kube.yaml_text import path_of

Raw = Mapping[str, Any]
View = TypeVar("View")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """An object that is left out, and why."""

    kind: str
    name: str
    reason: str
    uid: str = ""
    node: str = ""
    """Of a pod that is bound."""
    finished: bool = False
    """A pod that holds nothing any more."""
    held: PodView | None = None
    """Of a bound pod, if its requests alone can be read: those, and nothing that would need the rest."""


def readable(kind: str, raw: Raw, read: Callable[[Raw], View]) -> View | Unreadable:
    """The one place where a broken object is turned into a value."""
    try:
        return read(raw)
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{path_of(first['loc'])}: {first['msg'].removeprefix('Value error, ').split(' or instance of')[0]}"
        return Unreadable(kind=kind, name=_title(raw), reason=reason)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        what = f"field {error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
        return Unreadable(kind=kind, name=_title(raw), reason=f"{what} ({type(error).__name__})")


def epoch_seconds(timestamp: str | None) -> int:
    """RFC 3339 -> whole seconds since 1970; 0 where there is none."""
    return int(datetime.fromisoformat(timestamp).timestamp()) if timestamp else 0


def _title(raw: Raw) -> str:
    metadata = raw.get("metadata")
    if not isinstance(metadata, Mapping):
        return "?"
    namespace, name = metadata.get("namespace"), metadata.get("name", "?")
    return f"{namespace}/{name}" if namespace else str(name)
