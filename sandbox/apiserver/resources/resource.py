"""Describes one served resource, and holds all that are served right now.

A `Resource` has its names, its form and how its writes behave. Builtin kinds are rows of `builtin.py`; a CRD version
becomes one in `definitions.py`. It is a value that never changes: a changed CRD makes a new one. `Registry` finds them
by path and by group, in the order of discovery. Must never hold objects.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from sandbox.apiserver.objects import Obj
from sandbox.apiserver.resources import models
from sandbox.apiserver.schema.rules import Rules
from sandbox.apiserver.schema.structural import Schema
from sandbox.apiserver.storage.store import CollectionId
from sandbox.apiserver.tables.columns import Column

VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Resource:
    """Everything the server needs to know of `group/version/plural`."""

    group: str
    version: str
    plural: str
    kind: str
    singular: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    model: str = ""
    """The client's model of a builtin kind."""
    custom: "CustomForm | None" = None
    """The form that a CRD gives its kind; None for builtin kinds."""
    columns: tuple[Column, ...] | None = None
    selectable: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Field selectors beyond metadata.name and metadata.namespace: label to path in the stored form."""
    numbered: bool = False
    """metadata.generation counts changes of what is wanted."""
    unconditional_update: bool = True
    """PUT without a resourceVersion overwrites whatever is there."""
    returns_deleted: bool = False
    """DELETE answers the object, where most kinds answer a Status."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def collection(self) -> CollectionId:
        return (self.group, self.plural)

    @property
    def prefix(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def schema(self) -> Schema | None:
        if self.custom is not None:
            return self.custom.schema
        return models.schema(self.model) if self.model else None

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CustomForm:
    """One version of a CRD: the compiled schema, its CEL rules and the schema as it was written."""

    schema: Schema
    rules: Rules
    source: Obj


Groups = dict[str, dict[str, list[Resource]]]


class Registry:
    """Resources by group, version and plural."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self._resources: dict[tuple[str, str, str], Resource] = {}
        self.revision = 0
        """Changes with every change, so that documents made from the registry can be kept."""
        for resource in resources:
            self.add(resource)

    def add(self, resource: Resource) -> None:
        self._resources[(resource.group, resource.version, resource.plural)] = resource
        self.revision += 1

    def remove(self, group: str, plural: str) -> None:
        """All versions of one resource."""
        for key in [key for key in self._resources if (key[0], key[2]) == (group, plural)]:
            del self._resources[key]
        self.revision += 1

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._resources.get((group, version, plural))

    def namespaced(self) -> list[Resource]:
        return [resource for resource in self._resources.values() if resource.namespaced]

    def groups(self) -> Groups:
        """Group, version, resources; the core group is ''."""
        found: Groups = {}
        for resource in self._resources.values():
            found.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
        return found
