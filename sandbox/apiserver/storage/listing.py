"""Lists a collection, whole or in pages, always consistent.

Takes a collection and the options of a list, and returns entries in key order and the list's metadata. A page after
the first is served from the state at the version of the first, rebuilt from the history; where that is forgotten the
answer is 410, without the token of Kubernetes to go on inconsistently.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """The options of a list."""

    namespace: str = ""
    matches: Predicate | None = None
    limit: int = 0
    continue_token: str = ""


Page = tuple[Sequence[Entry], Obj]
"""Entries, and the metadata of the list."""
Token = tuple[int, str, str]
"""Of a page: the version of the first, and namespace and name of the last object that is on an earlier page."""


def _encode(token: Token) -> str:
    return base64.urlsafe_b64encode(json.dumps(token).encode()).decode()


def _decode(text: str) -> Token:
    try:
        version, namespace, name = json.loads(base64.urlsafe_b64decode(text))
        return int(version), str(namespace), str(name)
    except (ValueError, TypeError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error


def list_page(collection: Collection, options: ListOptions, current_version: int) -> Page:
    if not options.continue_token:
        return _collect(collection.items, collection.ordered_keys(), options, current_version)
    version, *after = _decode(options.continue_token)
    if version < collection.horizon:
        raise expired("The provided continue parameter is too old to display a consistent list result.")
    items, keys = _state(collection, version, current_version)
    return _collect(items, keys[bisect_right(keys, tuple(after)) :], options, version)


def _state(collection: Collection, version: int, current: int) -> tuple[Mapping[Key, Entry], Sequence[Key]]:
    if version >= current or not collection.since(version):
        return collection.items, collection.ordered_keys()
    past = collection.at(version)
    return past, sorted(past)


def _collect(items: Mapping[Key, Entry], keys: Sequence[Key], options: ListOptions, version: int) -> Page:
    metadata: Obj = {"resourceVersion": str(version)}
    found: list[Entry] = []
    last: Key = ("", "")
    for key in keys:
        if options.namespace and key[0] != options.namespace:
            continue
        entry = items[key]
        if options.matches is not None and not options.matches(entry.obj):
            continue
        if options.limit and len(found) == options.limit:
            metadata["continue"] = _encode((version, *last))
            break
        found.append(entry)
        last = key
    return found, metadata
