"""Schemas: what is pruned, defaulted and refused, of custom and of builtin kinds."""

from typing import Any

import pytest

from sandbox.apiserver.resources import models
from sandbox.apiserver.schema.conform import Pruner, decode_errors
from sandbox.apiserver.schema.structural import compile_schema
from sandbox.apiserver.schema.validation import validate

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a": {"type": "object", "properties": {"b": {"type": "integer", "default": 3}}},
        "withDefault": {"type": "object", "default": {}, "properties": {"x": {"type": "string", "default": "y"}}},
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "nullable": {"type": "string", "nullable": True},
        "list": {"type": "array", "items": {"type": "object", "properties": {"k": {"type": "string"}}}},
    },
}


def pruned(value: Any) -> tuple[Any, list[str]]:
    pruner = Pruner()
    return pruner.conform(value, compile_schema(SCHEMA)), pruner.unknown


def test_unknown_fields_go_with_their_paths() -> None:
    value = {"a": {"b": 1, "c": 2}, "list": [{"k": "v"}, {"z": 1}], "d": 1}

    assert pruned(value) == (
        {"a": {"b": 1}, "list": [{"k": "v"}, {}], "withDefault": {"x": "y"}},
        ["a.c", "list[1].z", "d"],
    )


def test_defaults_fill_what_is_there() -> None:
    assert pruned({"a": {}})[0]["a"] == {"b": 3}
    assert "a" not in pruned({})[0]


def test_open_objects_and_nulls() -> None:
    value, unknown = pruned({"open": {"x": {"y": 1}}, "nullable": None, "a": None})

    assert (value["open"], value["nullable"], unknown) == ({"x": {"y": 1}}, None, [])
    assert "a" not in value


def test_what_is_stored_already_is_shared() -> None:
    stored = {"a": {"b": 1, "unknown": True}}
    value = Pruner().conform({"a": stored["a"], "d": 1}, compile_schema(SCHEMA), trusted=stored)

    assert value["a"] is stored["a"]


OPEN_MAP = {"type": "object", "additionalProperties": {"type": "string"}}


@pytest.mark.parametrize(
    ("schema", "value", "complaint"),
    [
        ({"type": "number", "minimum": 1}, 0, "should be greater than or equal to 1"),
        ({"type": "number", "maximum": 1}, 2, "should be less than or equal to 1"),
        ({"type": "array", "minItems": 1, "items": {"type": "string"}}, [], "should have at least 1 items"),
        ({**OPEN_MAP, "maxProperties": 1}, {"a": "", "b": ""}, "must have at most 1 items"),
        ({"type": "string", "format": "date-time"}, "today", "must be of type date-time"),
        ({"type": "integer", "format": "int32"}, 2**31, "must be of type integer with format int32"),
        ({"type": "number"}, "1", 'must be of type number: "string"'),
    ],
)  # fmt: skip
def test_values_are_judged(schema: dict[str, Any], value: Any, complaint: str) -> None:
    root = compile_schema({"type": "object", "properties": {"f": schema}})

    errors = validate({"f": value}, root)

    assert len(errors) == 1
    assert complaint in errors[0].body()
    assert validate({"f": value}, root, {"f": value}) == []


@pytest.mark.parametrize(("type_", "value"), [("number", 1), ("integer", 1.0), ("integer", 7)])
def test_numbers_are_taken_as_json_has_them(type_: str, value: Any) -> None:
    assert validate(value, compile_schema({"type": type_})) == []


def test_builtin_kinds_are_described_by_the_client() -> None:
    pod = models.schema("V1Pod")
    containers = pod.properties["spec"].properties["containers"]

    assert containers.list_keys == ("name",)
    assert "containers" in pod.properties["spec"].required


def test_builtin_kinds_have_one_spelling() -> None:
    lease = {"spec": {"renewTime": "2026-01-01T01:00:00.000000+01:00"}}
    limits = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": 2, "cpu": 0.5, "memory": "1Gi"}}}]}}

    assert Pruner().conform(lease, models.schema("V1Lease"))["spec"]["renewTime"] == "2026-01-01T00:00:00.000000Z"
    container = Pruner().conform(limits, models.schema("V1Pod"))["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "2", "cpu": "500m", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("pod", "sentence"),
    [
        ({"spec": {"hostIPC": "yes"}}, "string into Go struct field spec.hostIPC of type boolean"),
        ({"spec": {"containers": {}}}, "object into Go struct field spec.containers of type array"),
        ({"spec": {"containers": [{"name": 1}]}}, "number into Go struct field spec.containers.name of type string"),
        ({"metadata": {"labels": {"a": 1}}}, "number into Go struct field metadata.labels.a of type string"),
        ({"spec": 3}, "number into Go struct field spec of type object"),
    ],
)
def test_wrong_types_of_builtin_kinds_are_named(pod: dict[str, Any], sentence: str) -> None:
    assert decode_errors(pod, models.schema("V1Pod")) == [f"json: cannot unmarshal {sentence}"]
