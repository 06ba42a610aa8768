"""Sets of fields in their wire form, FieldsV1: nested dictionaries of path elements.

`f:name` is a member of an object, `k:{…}` an item of a list map, `v:…` a member of a set. An element with an empty
dictionary belongs to the set; `"."` next to children says that the element itself belongs to it too. The empty set is
an empty root. Must never change a set that it was given.
"""

import json
from collections.abc import Iterator
from typing import Any

from sandbox.apiserver.objects import OF_THE_SERVER
from sandbox.apiserver.schema.structural import Schema
from sandbox.apiserver.schema.validation import item_keys

FieldSet = dict[str, Any]
SELF = "."


def owned_itself(node: FieldSet) -> bool:
    return not node or SELF in node


def below(node: FieldSet) -> FieldSet:
    """The children of an element, without the mark of the element itself."""
    if SELF not in node:
        return node
    return {element: child for element, child in node.items() if element != SELF}


def _node(member: bool, children: FieldSet) -> FieldSet | None:
    if not children:
        return {} if member else None
    return {SELF: {}, **children} if member else children


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """Two roots, or the children of two elements."""
    if not one or not other:
        return one or other
    result = dict(one)
    for element, node in other.items():
        mine = result.get(element)
        if mine is None:
            result[element] = node
        elif mine is not node:
            merged = _node(owned_itself(mine) or owned_itself(node), union(below(mine), below(node)))
            result[element] = {} if merged is None else merged
    return result


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    result: FieldSet = {}
    for element, node in one.items():
        theirs = other.get(element)
        left: FieldSet | None = node
        if theirs is not None:
            member = owned_itself(node) and not owned_itself(theirs)
            left = _node(member, difference(below(node), below(theirs)))
        if left is not None:
            result[element] = left
    return result


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    result: FieldSet = {}
    for element, node in one.items():
        theirs = other.get(element)
        if theirs is not None:
            both = _node(owned_itself(node) and owned_itself(theirs), intersection(below(node), below(theirs)))
            if both is not None:
                result[element] = both
    return result


def paths(fields: FieldSet, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every member as a path of elements, parents before children, in a fixed order."""
    for element, node in sorted(fields.items()):
        if element == SELF:
            continue
        if owned_itself(node):
            yield (*prefix, element)
        yield from paths(node, (*prefix, element))


def describe(path: tuple[str, ...]) -> str:
    """A path as conflicts name it: `.spec.gpus[index=0].mig`, `.metadata.finalizers[="x"]`."""
    text = ""
    for element in path:
        form, _, name = element.partition(":")
        if form == "f":
            text += f".{name}"
        elif form == "k":
            keys = ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(name).items())
            text += f"[{keys}]"
        else:
            text += f"[={name}]"
    return text


def item_element(item: Any, schema: Schema) -> str:
    """The path element of an item of a list map or a set."""
    if schema.list_type == "set":
        return "v:" + json.dumps(item, separators=(",", ":"))
    keys = dict(sorted(item_keys(item, schema).items())) if isinstance(item, dict) else {}
    return "k:" + json.dumps(keys, separators=(",", ":"))


Child = tuple[Any, Schema | None]


def children(value: Any, schema: Schema | None) -> dict[str, Child] | None:
    """The separately owned parts of a value, by path element; None for a leaf (scalar, atomic, empty)."""
    if isinstance(value, dict) and value:
        if schema is not None and schema.map_type == "atomic":
            return None
        return {f"f:{name}": (member, schema.field(name) if schema else None) for name, member in value.items()}
    if isinstance(value, list) and value and schema is not None and schema.list_type != "atomic":
        return {item_element(item, schema): (item, schema.items) for item in value}
    return None


def is_leaf(value: Any, schema: Schema | None) -> bool:
    """Whether a value is owned as one, whatever it holds."""
    if isinstance(value, dict):
        return schema is not None and schema.map_type == "atomic"
    if isinstance(value, list):
        return schema is None or schema.list_type == "atomic"
    return True


def fields_of(value: Any, schema: Schema | None) -> FieldSet:
    """The set that applying `value` claims: its leaves, list items, empty maps and members of free maps."""
    result: FieldSet = {}
    for element, (member, sub) in (children(value, schema) or {}).items():
        inner = fields_of(member, sub)
        declared = element.startswith("f:") and schema is not None and element[2:] in schema.properties
        itself = not declared or is_leaf(member, sub) or member in ({}, None)
        node = _node(itself, inner)
        if node is not None:
            result[element] = node
    return result


def all_of(value: Any, schema: Schema | None) -> FieldSet:
    """The set of everything in a value that is new as a whole: its leaves and every container on the way."""
    return {element: _all_below(member, sub) for element, (member, sub) in (children(value, schema) or {}).items()}


def _all_below(member: Any, schema: Schema | None) -> FieldSet:
    return _node(True, all_of(member, schema)) or {}


def compare(old: Any, new: Any, schema: Schema | None) -> tuple[FieldSet, FieldSet]:
    """What a write changed: the fields it set (added or modified) and the fields it removed."""
    if old is new:
        return {}, {}
    before, after = children(old, schema) or {}, children(new, schema) or {}
    touched: FieldSet = {}
    removed: FieldSet = {}
    for element, (member, sub) in after.items():
        was = before.get(element)
        if was is None:
            touched[element] = _all_below(member, sub)
            continue
        here, inner_touched, inner_removed = _compare_member(was[0], member, sub)
        _put(touched, element, _node(here, inner_touched))
        _put(removed, element, _node(False, inner_removed))
    for element, (member, sub) in before.items():
        if element not in after:
            removed[element] = _all_below(member, sub)
    return touched, removed


def _compare_member(old: Any, new: Any, schema: Schema | None) -> tuple[bool, FieldSet, FieldSet]:
    if old is new or old == new:
        return False, {}, {}
    if old is None and not is_leaf(new, schema):
        return False, all_of(new, schema), {}  # null is a list or map with nothing in it
    if new is None and not is_leaf(old, schema):
        return False, {}, all_of(old, schema)
    if is_leaf(old, schema) or is_leaf(new, schema) or type(old) is not type(new):
        return True, {}, {}
    touched, removed = compare(old, new, schema)
    return False, touched, removed


def _put(target: FieldSet, element: str, node: FieldSet | None) -> None:
    if node is not None:
        target[element] = node


def without_system_metadata(fields: FieldSet) -> FieldSet:
    """Fields that no manager owns are taken out: names, versions, what the server itself keeps."""
    return difference(fields, _SYSTEM)


_OF_METADATA = ("name", "namespace", "managedFields", *OF_THE_SERVER)
_SYSTEM: FieldSet = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {SELF: {}, **{f"f:{name}": {} for name in _OF_METADATA}},
}
