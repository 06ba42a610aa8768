"""Lists a collection, whole or in pages, always consistent.

Takes a collection and the options of a list, and returns entries in key order and the list's metadata. A page after
the first is served from the state at the version of the first, rebuilt from the history; where that is forgotten the
answer is 410 with a token to go on inconsistently, as Kubernetes does.
"""

import base64
import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandbox.apiserver.errors import bad_request, expired
from sandbox.apiserver.objects import Obj
from sandbox.apiserver.storage.selectors import Predicate
from sandbox.apiserver.storage.store import Collection, Entry, Key

_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """The options of a list."""

    namespace: str = ""
    matches: Predicate | None = None
    limit: int = 0
    continue_token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    entries: Sequence[Entry]
    metadata: Obj


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    """Where the next page starts, and at which version (0: whatever is newest)."""

    version: int
    after: Key

    def encoded(self) -> str:
        return base64.urlsafe_b64encode(json.dumps([self.version, *self.after]).encode()).decode().rstrip("=")


def _decode_token(text: str) -> _Token:
    try:
        padded = text + "=" * (-len(text) % 4)
        version, namespace, name = json.loads(base64.urlsafe_b64decode(padded))
        return _Token(version=int(version), after=(str(namespace), str(name)))
    except (ValueError, TypeError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error


def list_page(collection: Collection, options: ListOptions, current_version: int) -> Page:
    token = _decode_token(options.continue_token) if options.continue_token else None
    version = (token.version if token is not None else 0) or current_version
    if token is not None and version < collection.horizon:
        raise expired(_EXPIRED, {"continue": _Token(version=0, after=token.after).encoded()})
    items, keys = _state(collection, version, current_version)
    start = bisect_right(keys, token.after) if token is not None else 0
    return _collect(items, keys[start:], options, version)


def _state(collection: Collection, version: int, current: int) -> tuple[Mapping[Key, Entry], Sequence[Key]]:
    if version >= current or not collection.since(version):
        return collection.items, collection.ordered_keys()
    past = collection.at(version)
    return past, sorted(past)


def _collect(items: Mapping[Key, Entry], keys: Sequence[Key], options: ListOptions, version: int) -> Page:
    metadata: Obj = {"resourceVersion": str(version)}
    found: list[Entry] = []
    last: Key = ("", "")
    for place, key in enumerate(keys):
        if options.namespace and key[0] != options.namespace:
            continue
        entry = items[key]
        if options.matches is not None and not options.matches(entry.obj):
            continue
        if options.limit and len(found) == options.limit:
            metadata["continue"] = _Token(version=version, after=last).encoded()
            if options.matches is None:
                rest = keys[place:]
                metadata["remainingItemCount"] = sum(not options.namespace or k[0] == options.namespace for k in rest)
            break
        found.append(entry)
        last = key
    return Page(entries=found, metadata=metadata)
