"""Makes docs/api.md: every field of the API with its type and meaning.

Reads the CustomResourceDefinition, which is made from the pydantic types, so that the page says what the API server
enforces. Nothing is written here about a field.
"""

from collections.abc import Iterator
from typing import Any

from deploy.generate.crd import definition
from docs.generate.tables import table

INTRODUCTION = """# API reference

Every field of the API; `kubectl explain gpp.spec` prints the same.

`GPUPartitionPlan`, `gpuplan.dev/v1alpha1`, cluster-scoped, short name `gpp`. One object describes one node and has its
name. [design.md](design.md#the-api) has an example, and who writes which field. v1alpha1 changes by adding only.
"""


def page() -> str:
    """The page as text."""
    version = definition()["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    columns = version["additionalPrinterColumns"]
    parts = [INTRODUCTION]
    for part, who in (
        ("spec", "Written by you, `planned` by the controller."),
        ("status", "Written by the node agent."),
    ):
        parts += [
            f"## {part}\n",
            f"{schema['properties'][part]['description']} {who}\n",
            table(("field", "type", "meaning"), _fields(schema["properties"][part], "")),
        ]
    parts += [
        "## Rules across fields\n",
        "The API server refuses a plan that breaks one, with this message.\n",
        table(("of", "message"), sorted(set(_rules(schema, "")))),
        "## Columns of kubectl get\n",
        table(("column", "meaning"), ((one["name"], _meaning(one)) for one in columns)),
    ]
    return "\n".join(parts)


def _meaning(column: dict[str, Any]) -> str:
    wide = " With `-o wide`." if column.get("priority") else ""
    return str(column.get("description") or f"`{column['jsonPath']}`.") + wide


def _fields(node: dict[str, Any], path: str) -> Iterator[tuple[str, str, str]]:
    required = node.get("required", ())
    for name, field in node.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        # An item of `planned` is what an item of `gpus` is.
        repeated = here == "planned.gpus"
        suffix = " Required." if name in required else ""
        meaning = f"{field.get('description', '')}{' The same fields as in `gpus`.' if repeated else ''}{suffix}"
        yield f"`{here}{'[]' if field['type'] == 'array' else ''}`", _type(field), meaning
        if not repeated:
            inner = field["items"] if field["type"] == "array" else field
            yield from _fields(inner, f"{here}[]" if field["type"] == "array" else here)


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return " or ".join(str(value) for value in field["enum"])
    if field["type"] == "array":
        return f"list of {_type(field['items'])}, at most {field['maxItems']}"
    if field["type"] == "integer" and "minimum" in field:
        return f"{field['minimum']} to {field['maximum']}" if "maximum" in field else f"{field['minimum']} or more"
    if field.get("format") == "date-time":
        return "time"
    return {"string": "text", "boolean": "true or false", "integer": "whole number", "object": "object"}[field["type"]]


def _rules(node: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    for rule in node.get("x-kubernetes-validations", ()):
        yield f"`{path or 'the plan'}`", rule["message"]
    for name, field in node.get("properties", {}).items():
        if (path, name) != ("spec.planned", "gpus"):
            here = f"{path}.{name}" if path else name
            yield from _rules(field, here)
            yield from _rules(field.get("items", {}), f"{here}[]")
