"""Shows objects in the form that a client accepts: as they are, or as a table.

Takes stored entries and returns JSON; the bytes of a whole object are encoded once and kept with it, so that a list or
a hundred watches share them. Must never change an object.
"""

from collections.abc import Iterable
from typing import Any

from sandbox.apiserver.objects import Obj, encode, meta
from sandbox.apiserver.resources.resource import Resource
from sandbox.apiserver.storage.store import Entry
from sandbox.apiserver.tables.columns import AGE, NAME, Column

_META_VERSION = "meta.k8s.io/v1"


def item_bytes(resource: Resource, entry: Entry) -> bytes:
    """An item of a list: those of builtin kinds do not repeat apiVersion and kind, those of custom resources do."""
    whole = entry.encoded
    prefix = encode({"apiVersion": resource.api_version, "kind": resource.kind})[:-1] + b","
    if resource.custom is None and whole.startswith(prefix):
        return b"{" + whole[len(prefix) :]
    return whole


def partial_metadata(obj: Obj) -> Obj:
    return {"kind": "PartialObjectMetadata", "apiVersion": _META_VERSION, "metadata": obj["metadata"]}


def table(resource: Resource, objs: Iterable[Obj], metadata: Obj, include: str, *, with_columns: bool = True) -> Obj:
    """Of stored objects. `include` is the query's includeObject: None, Metadata (the default) or Object."""
    columns = resource.columns or (NAME, AGE)
    return {
        "kind": "Table",
        "apiVersion": _META_VERSION,
        "metadata": metadata,
        "columnDefinitions": [_definition(column) for column in columns] if with_columns else None,
        "rows": [_row(columns, obj, include) for obj in objs],
    }


def _definition(column: Column) -> Obj:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": "",
        "priority": column.priority,
    }


def _row(columns: Iterable[Column], obj: Obj, include: str) -> Obj:
    shown: Any = None if include == "None" else partial_metadata(obj)
    if include == "Object":
        shown = obj
    return {"cells": [column.cell(obj) for column in columns], "object": shown}


def one(resource: Resource, obj: Obj, include: str, *, as_table: bool) -> Any:
    """A single object as the answer to a read or a write."""
    if as_table:
        return table(resource, [obj], {"resourceVersion": meta(obj).get("resourceVersion", "")}, include)
    return obj


def many(resource: Resource, entries: Iterable[Entry], metadata: Obj, include: str, *, as_table: bool) -> bytes:
    """A list."""
    if as_table:
        return encode(table(resource, [entry.obj for entry in entries], metadata, include))
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
    return encode(head)[:-1] + b',"items":[' + b",".join(item_bytes(resource, e) for e in entries) + b"]}"
