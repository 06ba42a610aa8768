"""CustomResourceDefinitions: what makes one acceptable, and the resources that it adds.

Takes a CRD object and returns what is wrong with it (422), its status once accepted, and the `Resource` that it adds:
one, for it has one version here. A schema that this server cannot evaluate is refused; the finer rules of acceptance
are left to a real server. Must never touch the store.
"""

from collections.abc import Iterator
from typing import Any

from sandbox.apiserver.errors import FieldError, forbidden_field, not_supported, required, wrong
from sandbox.apiserver.objects import Obj, mappings
from sandbox.apiserver.resources import models
from sandbox.apiserver.resources.resource import CustomForm, Resource
from sandbox.apiserver.schema.rules import RuleError, Rules
from sandbox.apiserver.schema.structural import Schema, compile_schema
from sandbox.apiserver.tables.columns import columns_of, compile_path

# What this server evaluates of a schema. Another word is refused: it would be ignored in silence.
KEYWORDS = {
    *("type", "description", "format", "default", "enum", "pattern", "nullable", "required", "properties", "items"),
    *("additionalProperties", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
    *("minProperties", "maxProperties", "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"),
    *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type", "x-kubernetes-validations"),
}
_ROOT = "spec.validation.openAPIV3Schema"


def with_defaults(crd: Obj) -> Obj:
    """The CRD with the names that may be left out."""
    spec = crd.get("spec") or {}
    names = spec.get("names") or {}
    kind = names.get("kind", "")
    filled = {"singular": kind.lower(), "listKind": f"{kind}List", **{k: v for k, v in names.items() if v}}
    return {**crd, "spec": {"conversion": {"strategy": "None"}, **spec, "names": filled}}


def established(crd: Obj, now: str) -> Obj:
    """The CRD with the status that it has once it is served."""
    spec = crd["spec"]
    old = {condition["type"]: condition for condition in mappings((crd.get("status") or {}).get("conditions"))}
    conditions = [
        old.get(type_)
        or {"type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
        for type_, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored = [version["name"] for version in spec["versions"]]
    return {**crd, "status": {"conditions": conditions, "acceptedNames": spec["names"], "storedVersions": stored}}


def check(crd: Obj) -> list[FieldError]:
    """What is wrong with a CRD, in the order of its fields."""
    spec = crd.get("spec") or {}
    names, versions = spec.get("names") or {}, spec.get("versions") or []
    errors: list[FieldError] = []
    wanted = f"{names.get('plural', '')}.{spec.get('group', '')}"
    name = crd["metadata"].get("name", "")
    if name != wanted:
        errors.append(wrong("metadata.name", name, f'must be spec.names.plural+"."+spec.group, expected "{wanted}"'))
    absent = [field for field in ("plural", "kind") if not names.get(field)]
    errors += [required(f"spec.names.{field}") for field in absent]
    if spec.get("scope") not in ("Cluster", "Namespaced"):
        errors.append(not_supported("spec.scope", spec.get("scope"), ("Cluster", "Namespaced")))
    if len(versions) != 1 or not (versions[0].get("served") and versions[0].get("storage")):
        errors.append(wrong("spec.versions", versions, "must be one, served and stored: the sandbox converts nothing"))
        return errors
    (version,) = versions
    source = (version.get("schema") or {}).get("openAPIV3Schema")
    if source is None:
        errors.append(required("spec.versions[0].schema.openAPIV3Schema", "schemas are required"))
    else:
        errors += _check_schema(source)
    for column in version.get("additionalPrinterColumns") or []:
        try:
            compile_path(column["jsonPath"])
        except ValueError as error:
            path = f"spec.versions[0].additionalPrinterColumns[{column['name']}].jsonPath"
            errors.append(wrong(path, column["jsonPath"], str(error)))
    return errors


def _check_schema(source: Obj) -> Iterator[FieldError]:
    if source.get("type") != "object":
        yield wrong(f"{_ROOT}.type", source.get("type"), "must be object at the root")
    shape = list(_walk(source, _ROOT))
    yield from shape
    if not shape:
        try:
            Rules(compile_schema(source))
        except RuleError as error:
            yield wrong(error.path, error.rule, str(error))


def _walk(source: Any, path: str) -> Iterator[FieldError]:
    """Structural schemas only: every value has a type, every list map its keys."""
    if not isinstance(source, dict):
        return
    for word in sorted(source.keys() - KEYWORDS):
        yield forbidden_field(f"{path}.{word}", "not supported in the sandbox")
    free = source.get("x-kubernetes-int-or-string") or source.get("x-kubernetes-preserve-unknown-fields")
    if source.get("type") is None and not free:
        yield required(f"{path}.type", "must not be empty for specified object fields")
    keys = source.get("x-kubernetes-list-map-keys") or []
    members = (source.get("items") or {}).get("properties") or {}
    if (source.get("x-kubernetes-list-type") == "map" and not keys) or any(key not in members for key in keys):
        yield wrong(f"{path}.x-kubernetes-list-map-keys", keys, "entries must all be names of item properties")
    for name, sub in (source.get("properties") or {}).items():
        yield from _walk(sub, f"{path}.properties[{name}]")
    for word in ("items", "additionalProperties"):
        yield from _walk(source.get(word), f"{path}.{word}")


def resource_of(crd: Obj) -> Resource:
    """What an accepted CRD adds."""
    spec = crd["spec"]
    names, (version,) = spec["names"], spec["versions"]
    source = version["schema"]["openAPIV3Schema"]
    schema = _with_object_fields(compile_schema(source))
    return Resource(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        singular=names["singular"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=("status",) if "status" in (version.get("subresources") or {}) else (),
        custom=CustomForm(schema=schema, rules=Rules(schema), source=source),
        columns=columns_of(version.get("additionalPrinterColumns")),
        selectable={
            field["jsonPath"].lstrip("."): tuple(field["jsonPath"].lstrip(".").split("."))
            for field in version.get("selectableFields") or []
        },
        numbered=True,
        unconditional_update=False,
    )


def _with_object_fields(schema: Schema) -> Schema:
    """Every object has apiVersion, kind and metadata, whatever the CRD declares."""
    text = compile_schema({"type": "string"})
    schema.properties = {
        **schema.properties,
        "apiVersion": text,
        "kind": text,
        "metadata": models.schema("V1ObjectMeta"),
    }
    return schema
