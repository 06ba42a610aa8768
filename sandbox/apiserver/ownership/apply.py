"""Merges one manager's server-side apply into the live object.

Takes the live object (or none), the applied configuration and its manager, and returns the merged object with its
managedFields, or the conflicts with other managers. What the manager applied before and leaves out now is removed,
unless another manager owns it. Must never read the clock or the store.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sandbox.apiserver.errors import ApiError
from sandbox.apiserver.objects import MISSING, Obj, meta
from sandbox.apiserver.ownership.fieldsets import (
    SELF,
    FieldSet,
    below,
    compare,
    describe,
    difference,
    fields_of,
    intersection,
    item_element,
    owned_itself,
    paths,
    union,
    without_system_metadata,
)
from sandbox.apiserver.ownership.managedfields import Manager, Owned, decode, store
from sandbox.apiserver.schema.structural import Schema

FIELD_MANAGER_CONFLICT = "FieldManagerConflict"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """One field that another manager owns and that would change."""

    owner: Manager
    field: str

    def cause(self) -> Obj:
        return {
            "reason": FIELD_MANAGER_CONFLICT,
            "message": f"conflict with {self.owner}",
            "field": self.field,
        }


def apply(live: Obj, config: Obj, schema: Schema | None, manager: Manager, *, force: bool, now: str) -> Obj:
    """The merged object with its ownership settled; raises the 409 of field conflicts unless `force`."""
    entries = decode(meta(live).get("managedFields"))
    mine = next((entry for entry in entries if entry.manager.identity == manager.identity), None)
    others = [entry for entry in entries if entry is not mine]
    wanted = without_system_metadata(fields_of(config, schema))
    merged = merge(live, config, schema)
    if mine is not None:
        managed = union(wanted, {"f:metadata": {SELF: {}}})  # metadata itself has no owner that may remove it
        for entry in others:
            managed = union(managed, entry.fields)
        merged = remove(merged, mine.fields, managed, schema)
    touched, removed = compare(live, merged, schema)
    others = _take(others, touched, force=force)
    others = [replace(entry, fields=difference(entry.fields, removed)) for entry in others]
    changed = bool(without_system_metadata(touched) or without_system_metadata(removed))
    if mine is not None and not changed:
        mine = replace(mine, manager=manager, fields=wanted)
    else:
        mine = Owned(manager=manager, fields=wanted, time=now)
    return store(merged, [*others, mine])


def _take(others: Sequence[Owned], touched: FieldSet, *, force: bool) -> list[Owned]:
    """The other managers without what this apply changes; a conflict is raised unless forced."""
    left: list[Owned] = []
    conflicts: list[Conflict] = []
    for entry in others:
        contested = intersection(entry.fields, touched)
        left.append(replace(entry, fields=difference(entry.fields, contested)) if contested else entry)
        conflicts += [Conflict(owner=entry.manager, field=describe(path)) for path in paths(contested)]
    if conflicts and not force:
        raise conflict_error(conflicts)
    return left


def conflict_error(conflicts: Sequence[Conflict]) -> ApiError:
    details = {"causes": [conflict.cause() for conflict in conflicts]}
    if len(conflicts) == 1:
        only = conflicts[0]
        message = f"Apply failed with 1 conflict: conflict with {only.owner}: {only.field}"
        return ApiError(409, "Conflict", message, details=details)
    by_owner: dict[str, list[str]] = {}
    for conflict in conflicts:
        by_owner.setdefault(str(conflict.owner), []).append(conflict.field)
    lines: list[str] = []
    for owner, fields in sorted(by_owner.items()):
        lines += [f"conflicts with {owner}:", *(f"- {name}" for name in fields)]
    message = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(lines)
    return ApiError(409, "Conflict", message, details=details)


def merge(live: Any, config: Any, schema: Schema | None) -> Any:
    """`config` over `live`: maps by member, list maps and sets by item, all else replaced."""
    if isinstance(live, dict) and isinstance(config, dict) and (schema is None or schema.map_type != "atomic"):
        merged = dict(live)
        for name, value in config.items():
            merged[name] = merge(live[name], value, schema.field(name) if schema else None) if name in live else value
        return merged
    if isinstance(live, list) and isinstance(config, list) and schema is not None and schema.list_type != "atomic":
        return _merge_list(live, config, schema)
    return live if live == config else config


def _merge_list(live: list[Any], config: list[Any], schema: Schema) -> list[Any]:
    """Shared items take the applied order; items of one side alone stay between their neighbours of that side."""
    stored = {item_element(item, schema): item for item in live}
    wanted = {item_element(item, schema): item for item in config}
    here, there = list(stored), list(wanted)
    shared = [element for element in there if element in stored]
    merged: dict[str, Any] = {}

    def take(element: str) -> None:
        mine, theirs = stored.get(element, MISSING), wanted.get(element, MISSING)
        both = mine is not MISSING and theirs is not MISSING
        merged[element] = merge(mine, theirs, schema.items) if both else mine if theirs is MISSING else theirs
        if shared and shared[0] == element:
            shared.pop(0)

    left = right = 0
    while left < len(here) or right < len(there):
        mine, theirs = here[left : left + 1], there[right : right + 1]
        if mine == theirs:
            take(mine[0])
            left, right = left + 1, right + 1
        elif mine and mine[0] not in wanted:
            take(mine[0])
            left += 1
        elif mine and (mine[0] in merged or (theirs and shared and mine[0] != shared[0])):
            left += 1  # comes, or came, where the applied list has it
        else:
            take(theirs[0])
            right += 1
    return list(merged.values())


def remove(value: Any, last: FieldSet, managed: FieldSet, schema: Schema | None) -> Any:
    """`value` without what only `last` applied: what it owned and no manager owns now."""
    if isinstance(value, dict):
        if schema is not None and schema.map_type == "atomic":
            return value
        members = {f"f:{name}": (name, member) for name, member in value.items()}
        kept: Obj = {}
        for element, (name, member) in members.items():
            result = _remove_one(element, member, last, managed, schema.field(name) if schema else None)
            if result is not _GONE:
                kept[name] = result
        return kept
    if isinstance(value, list) and schema is not None and schema.list_type != "atomic":
        items = [_remove_one(item_element(item, schema), item, last, managed, schema.items) for item in value]
        return [item for item in items if item is not _GONE]
    return value


_GONE = object()


def _remove_one(element: str, value: Any, last: FieldSet, managed: FieldSet, schema: Schema | None) -> Any:
    mine = last.get(element)
    if mine is None:
        return value
    theirs = managed.get(element)
    is_field = element.startswith("f:")  # a named field counts as owned by each manager that owns anything below it
    was_owned = is_field or owned_itself(mine)
    is_owned = theirs is not None and (is_field or owned_itself(theirs))
    if was_owned and not is_owned:
        return _GONE
    if not below(mine):
        return value
    result = remove(value, below(mine), below(theirs) if theirs is not None else {}, schema)
    if result in ({}, []):
        return result if value in ({}, []) else None  # null, and so invalid where the schema has none: as Kubernetes
    only_empty_lists_left = isinstance(result, dict) and not fields_of(result, schema)
    return _GONE if only_empty_lists_left and fields_of(value, schema) else result
