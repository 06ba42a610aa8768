"""Keeps metadata.managedFields, the record of who owns which fields, through every write.

Takes the entries of the stored object and what a write changed, and returns the new entries. A manager is its name,
operation and subresource (and, for updates, the API version). Must never read values, only sets of fields.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from sandbox.apiserver.objects import Obj, meta
from sandbox.apiserver.ownership.fieldsets import FieldSet, difference, union

APPLY, UPDATE = "Apply", "Update"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manager:
    """Who writes: as in the query parameter fieldManager, else the first word of the user agent."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    @property
    def identity(self) -> tuple[str, ...]:
        version = "" if self.operation == APPLY else self.api_version
        return (self.name, self.operation, version, self.subresource)

    def __str__(self) -> str:
        """As the message of a conflict names it."""
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return text if self.operation == APPLY else f"{text} using {self.api_version}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """One entry of managedFields."""

    manager: Manager
    fields: FieldSet
    time: str

    def encoded(self) -> Obj:
        entry: Obj = {
            "manager": self.manager.name,
            "operation": self.manager.operation,
            "apiVersion": self.manager.api_version,
            "time": self.time,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields,
        }
        if self.manager.subresource:
            entry["subresource"] = self.manager.subresource
        return entry


def decode(entries: Any) -> list[Owned]:
    """The entries of an object; those without a manager or fields are left out."""
    return [_decoded(entry) for entry in entries or () if entry.get("fieldsV1")]


def _decoded(entry: Obj) -> Owned:
    manager = Manager(
        name=entry.get("manager", ""),
        operation=entry.get("operation", UPDATE),
        api_version=entry.get("apiVersion", ""),
        subresource=entry.get("subresource", ""),
    )
    return Owned(manager=manager, fields=entry["fieldsV1"], time=entry.get("time", ""))


def store(obj: Obj, entries: Iterable[Owned]) -> Obj:
    """The object with these entries, in the order in which real servers list them."""
    kept = sorted(
        (entry for entry in entries if entry.fields),
        key=lambda entry: (entry.manager.operation, entry.time, *entry.manager.identity),
    )
    metadata = {name: value for name, value in meta(obj).items() if name != "managedFields"}
    if kept:
        metadata["managedFields"] = [entry.encoded() for entry in kept]
    return {**obj, "metadata": metadata}


def after_update(entries: list[Owned], manager: Manager, touched: FieldSet, removed: FieldSet, now: str) -> list[Owned]:
    """A create, update or patch takes what it touched from all managers, and gives up what it removed."""
    mine = Owned(manager=manager, fields={}, time=now)
    others: list[Owned] = []
    for entry in entries:
        if entry.manager.identity == manager.identity:
            mine = entry
        else:
            left = difference(difference(entry.fields, touched), removed)
            others.append(replace(entry, fields=left))
    fields = union(difference(mine.fields, removed), touched)
    time = now if touched else mine.time
    return [*others, replace(mine, fields=fields, time=time)]
