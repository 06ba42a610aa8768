"""Turns pydantic's JSON schema into the structural OpenAPI v3 schema that a CustomResourceDefinition may hold.

Takes a model of crds.v1alpha1, returns a dict ready for `openAPIV3Schema`. References are inlined, an optional field is
simply not required (the API server prunes an explicit null). A keyword that Kubernetes would refuse, or that is unknown
here, raises with the path of the field: nothing is dropped silently.
"""

from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

KEPT = frozenset(
    {"description", "type", "format", "enum", "required", "pattern"}
    | {"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"}
)
DROPPED = frozenset(
    {"title", "default", "additionalProperties"}
)  # no CRD defaults: the API holds exactly what is in Git
HANDLED = frozenset({"$defs", "$ref", "anyOf", "const", "properties", "items", "type"})


class NotStructuralError(TypeError):
    """A model that has no structural schema; the message names the field."""


def structural_schema(model: type[BaseModel]) -> Schema:
    """The structural schema of a model, by alias."""
    root = model.model_json_schema(by_alias=True, mode="validation")
    return _walk(root, root.get("$defs", {}), model.__name__)


def _walk(node: Schema, definitions: dict[str, Schema], path: str) -> Schema:
    node = _resolved(node, definitions, path)
    unknown = [key for key in node if key not in KEPT | DROPPED | HANDLED and not key.startswith("x-kubernetes-")]
    if unknown:
        raise NotStructuralError(f"{path}: {', '.join(sorted(unknown))} has no structural form")
    out: Schema = {key: value for key, value in node.items() if key in KEPT}
    if "const" in node:
        out["enum"] = [node["const"]]
    if node.get("type") == "object":
        properties = {k: _walk(v, definitions, f"{path}.{k}") for k, v in node.get("properties", {}).items()}
        if properties:
            out["properties"] = properties
    elif node.get("type") == "array":
        out["items"] = _walk(node["items"], definitions, f"{path}[]")
        if "maxItems" not in out:
            raise NotStructuralError(f"{path}: a list without maxItems (its CEL rules could not be costed)")
    elif node.get("type") == "integer":
        out.setdefault("format", "int32")
    elif node.get("type") not in {"string", "boolean"}:
        raise NotStructuralError(f"{path}: type {node.get('type')!r} has no structural form")
    out.update({key: value for key, value in node.items() if key.startswith("x-kubernetes-")})
    _check_list_map(out, path)
    return out


def _resolved(node: Schema, definitions: dict[str, Schema], path: str) -> Schema:
    """The node with `$ref` inlined and `X | None` reduced to X; keys next to a reference win over it."""
    if "anyOf" in node:
        real = [choice for choice in node["anyOf"] if choice.get("type") != "null"]
        if len(real) != 1:
            raise NotStructuralError(f"{path}: a union of {len(real)} types has no structural form")
        siblings = {key: value for key, value in node.items() if key != "anyOf"}
        return _resolved({**real[0], **siblings}, definitions, path)
    if "$ref" in node:
        target = definitions[node["$ref"].rsplit("/", 1)[1]]
        siblings = {key: value for key, value in node.items() if key != "$ref"}
        return _resolved({**target, **siblings}, definitions, path)
    return node


def _check_list_map(schema: Schema, path: str) -> None:
    for key in schema.get("x-kubernetes-list-map-keys", []):
        if key not in schema["items"].get("required", []):
            raise NotStructuralError(f"{path}: the list-map key {key} must be a required field")
