"""JSON schemas of the kinds that a manifest file may hold: only the fields that gpuplan and its sandbox read.

Everything else of a Pod or Node may be present and is passed on. GPUPartitionPlan's schema is that of the CRD, closed,
so that a misspelt field is named here and never dropped.
"""

import re
from collections.abc import Iterator
from typing import Any

from crds.definition import text
from kube.yaml_text import read_yaml

Schema = dict[str, Any]

NAME: Schema = {
    "type": "string",
    "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
    "maxLength": 253,
    "description": "A name has lower-case letters, digits, - and dots",
}
TEXT_MAP: Schema = {
    "type": "object",
    "additionalProperties": {"type": "string", "description": "Quote the value: labels and annotations are text"},
}
METADATA: Schema = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": NAME, "namespace": NAME, "labels": TEXT_MAP, "annotations": TEXT_MAP},
}
QUANTITY: Schema = {
    "type": ["string", "integer", "number"],
    "pattern": r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+)?$",
    "description": "A quantity is a number with an optional unit, such as 500m, 2 or 16Gi",
}
QUANTITIES: Schema = {"type": "object", "additionalProperties": QUANTITY}
CONTAINER: Schema = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string"},
        "command": {"type": "array", "items": {"type": "string", "description": "Quote the value: a command is text"}},
        "args": {"type": "array", "items": {"type": "string", "description": "Quote the value: arguments are text"}},
        "resources": {"type": "object", "properties": {"limits": QUANTITIES, "requests": QUANTITIES}},
    },
}


def _kind(metadata: Schema = METADATA, **properties: Schema) -> Schema:
    required = ["metadata", *(["spec"] if "spec" in properties else [])]
    return {"type": "object", "required": required, "properties": {"metadata": metadata, **properties}}


POD = _kind(
    spec={
        "type": "object",
        "required": ["containers"],
        "properties": {
            "containers": {"type": "array", "minItems": 1, "items": CONTAINER},
            "initContainers": {"type": "array", "items": CONTAINER},
            "nodeName": NAME,
            "priority": {"type": "integer"},
        },
    }
)
NODE = _kind(status={"type": "object", "properties": {"capacity": QUANTITIES, "allocatable": QUANTITIES}})


def _closed(schema: Schema) -> Schema:
    """The CRD's schema with unknown fields refused, which is what `kubectl apply` does by strict validation."""
    out = {key: value for key, value in schema.items() if not key.startswith("x-kubernetes-")}
    if "properties" in schema:
        out["properties"] = {name: _closed(child) for name, child in schema["properties"].items()}
    if schema.get("type") == "object":
        out["additionalProperties"] = False
    if "items" in schema:
        out["items"] = _closed(schema["items"])
    rules = [*_rules(schema)]
    return {**out, "allOf": rules} if rules else out


def _rules(schema: Schema) -> Iterator[Schema]:
    """Of its rules in CEL those that say which fields go together."""
    for rule in schema.get("x-kubernetes-validations", ()):
        text: str = rule["rule"]
        fields = [{"required": [name]} for name in re.findall(r"has\(self\.(\w+)\)", text)]
        if fields:
            how: Schema = {"not": {"allOf": fields}} if text.startswith("!") else {"oneOf": fields}
            if "||" in text:
                how = {"anyOf": [fields[0], {"not": {"anyOf": fields[1:]}}]}
            yield {**how, "description": rule["message"]}


def _plan() -> Schema:
    crd: Any = read_yaml(text())
    schema = _closed(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = METADATA
    return schema


SCHEMAS: dict[tuple[Any, Any], Schema] = {
    ("v1", "Namespace"): _kind(),
    ("v1", "ConfigMap"): _kind(data=TEXT_MAP),
    ("v1", "Node"): NODE,
    ("v1", "Pod"): POD,
    ("gpuplan.dev/v1alpha1", "GPUPartitionPlan"): _plan(),
}
