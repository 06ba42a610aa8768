"""Compiles a structural schema from its OpenAPI form.

Takes `openAPIV3Schema` of a CRD, or a schema made from the client's models, and returns a tree of `Schema` nodes, which
pruning, validation and field ownership read. References are followed by name, so that a schema may contain itself. Must
never read an object.
"""

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sandbox.apiserver.objects import MISSING, Obj

Resolve = Callable[[str], "Schema"]


def _no_references(name: str) -> "Schema":
    raise ValueError(f"a structural schema has no references, found {name!r}")


@dataclass(slots=True, eq=False)
class Schema:
    """One node: what a value at this place may be. Built empty, then filled, so that it can refer to itself."""

    source: Obj = field(default_factory=dict)
    type: str = ""
    properties: "dict[str, Schema]" = field(default_factory=dict)
    additional: "Schema | None" = None
    items: "Schema | None" = None
    required: tuple[str, ...] = ()
    default: Any = MISSING
    nullable: bool = False
    preserve: bool = False
    int_or_string: bool = False
    omit_empty: bool = False
    quantity: bool = False
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    map_type: str = "granular"
    pattern: re.Pattern[str] | None = None
    rules: tuple[Obj, ...] = ()

    def fill(self, source: Mapping[str, Any], resolve: Resolve = _no_references) -> "Schema":
        """Take over everything in `source`; returns itself."""
        self.source = dict(source)
        self.type = source.get("type", "")
        self.required = tuple(source.get("required", ()))
        self.default = source.get("default", MISSING)
        self.nullable = source.get("nullable", False)
        self.preserve = source.get("x-kubernetes-preserve-unknown-fields", False)
        self.int_or_string = source.get("x-kubernetes-int-or-string", False)
        self.list_type = source.get("x-kubernetes-list-type", "atomic")
        self.list_keys = tuple(source.get("x-kubernetes-list-map-keys", ()))
        self.map_type = source.get("x-kubernetes-map-type", "granular")
        self.rules = tuple(source.get("x-kubernetes-validations", ()))
        self.omit_empty = source.get(OMIT_EMPTY, False)
        self.quantity = source.get("format") == "quantity"
        if "pattern" in source:
            self.pattern = re.compile(source["pattern"])
        self.properties = {name: _child(sub, resolve) for name, sub in source.get("properties", {}).items()}
        if isinstance(source.get("items"), Mapping):
            self.items = _child(source["items"], resolve)
        additional = source.get("additionalProperties")
        if isinstance(additional, Mapping):
            self.additional = _child(additional, resolve)
        elif additional is True:
            self.preserve = True
        return self

    def with_default(self, default: Any) -> "Schema":
        """The same schema with another default."""
        changed = copy.copy(self)
        changed.default = default
        return changed

    def field(self, name: str) -> "Schema | None":
        """The schema of one member of an object; None where it has none."""
        return self.properties.get(name, self.additional)


OMIT_EMPTY: Final = "x-omit-empty"
"""Ours: an empty list or map of this field is as good as none (Go's omitempty on builtin kinds)."""


GO_STRUCT: Final = "x-go-struct"
"""Ours: the name of the struct that a builtin kind's object is decoded into."""


def _child(source: Mapping[str, Any], resolve: Resolve) -> Schema:
    reference = source.get("$ref")
    if isinstance(reference, str):
        return resolve(reference)
    return Schema().fill(source, resolve)


def compile_schema(source: Mapping[str, Any]) -> Schema:
    """The schema of a CRD version, which has no references."""
    return Schema().fill(source)
