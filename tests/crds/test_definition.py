"""The generated CRD: fresh, structural, described, and bounded. Objects at an API server are in test_served."""

from pathlib import Path
from typing import Annotated, Any

import jsonschema
import pytest
import yaml
from pydantic import BaseModel, Field

import crds
from crds.definition import FILE_NAME
from crds.v1alpha1 import names
from crds.v1alpha1.plan import GPUPartitionPlan
from crds.v1alpha1.status import PlanStatus
from deploy.generate.crd import definition, text
from deploy.generate.crd_schema import NotStructuralError, structural_schema
from tests.builders.objects import plan

SCHEMA = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def walk(schema: dict[str, Any], path: str = "") -> list[tuple[str, dict[str, Any]]]:
    found = [(path, schema)]
    for name, child in schema.get("properties", {}).items():
        found += walk(child, f"{path}.{name}")
    if "items" in schema:
        found += walk(schema["items"], f"{path}[]")
    return found


def test_the_committed_yaml_is_generated_from_the_types() -> None:
    assert Path(crds.__file__).with_name(FILE_NAME).read_text() == text()


def test_the_yaml_reads_back_as_the_definition() -> None:
    assert yaml.safe_load(text()) == definition()


@pytest.mark.parametrize(("path", "node"), [pytest.param(*pair, id=pair[0] or "root") for pair in walk(SCHEMA)])
def test_every_field_is_typed_described_and_bounded(path: str, node: dict[str, Any]) -> None:
    assert "type" in node
    assert set(node) <= {
        *(["default"] if path == ".status" else []),
        *("type", "description", "format", "enum", "required", "pattern", "properties", "items"),
        *("minimum", "maximum", "minLength", "maxLength", "maxItems"),
        *("x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type", "x-kubernetes-validations"),
    }
    if not path.endswith("[]") and path != ".metadata" and path.count("[]") + path.count(".") > 0:
        assert node.get("description", "").endswith((".", "empty.")), f"{path} has no sentence for kubectl explain"
    if node["type"] == "array":
        assert node["maxItems"] <= 64
    if node["type"] == "string" and "enum" not in node and node.get("format") != "date-time" and path.count(".") > 1:
        assert "maxLength" in node, f"{path} is not bounded"


def test_names_of_the_kind() -> None:
    spec = definition()["spec"]
    assert spec["names"]["shortNames"] == ["gpp"]
    assert spec["scope"] == "Cluster"
    columns = spec["versions"][0]["additionalPrinterColumns"]
    assert [c["name"] for c in columns if not c.get("priority")] == [
        *("Mode", "Paused", "GPUs", "Model", "MIG", "MPS", "Whole", "Ready", "Reason", "Age")
    ]
    assert [c["name"] for c in columns if c.get("priority")] == ["Backend", "Driver", "Agent"]


def test_the_status_alone_has_a_default() -> None:
    defaults = {path: node["default"] for path, node in walk(SCHEMA) if "default" in node}
    assert defaults == {".status": {"observedGeneration": -1}}
    PlanStatus.read(defaults[".status"])


@pytest.mark.parametrize(
    ("spec", "valid"),
    [
        pytest.param({}, True, id="empty"),
        pytest.param({"mode": "Manual", "paused": True}, True, id="switches"),
        pytest.param({"mode": "auto"}, False, id="mode-case"),
        pytest.param({"gpus": [{"index": 0, "mig": {"instances": []}}]}, True, id="mig-empty"),
        pytest.param({"gpus": [{"index": 16, "whole": {}}]}, False, id="index-16"),
        pytest.param({"gpus": [{"whole": {}}]}, False, id="no-index"),
        pytest.param({"gpus": [{"index": 0, "mig": {"instances": [{"profile": "1" * 33}]}}]}, False, id="profile"),
        pytest.param({"gpus": [{"index": 0, "mig": {"instances": [{"profile": "1g.24gb-me"}]}}]}, True, id="minus-me"),
        pytest.param({"gpus": [{"index": 0, "mig": {"instances": [{"profile": "1g.24gb+gfx"}]}}]}, True, id="gfx"),
        pytest.param(
            {"gpus": [{"index": 0, "mig": {"instances": [{"profile": "1g.24gb+me.all"}]}}]}, True, id="me.all"
        ),
        pytest.param({"gpus": [{"index": 0, "mps": {"slices": [{"memoryGB": 0}]}}]}, False, id="zero-gb"),
        pytest.param({"planned": {"gpus": [{"index": 0, "uuid": "0"}]}}, False, id="uuid"),
    ],
)
def test_schema_bounds(spec: dict[str, Any], valid: bool) -> None:
    errors = list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(plan(spec=spec)))

    assert (not errors) is valid, [e.message for e in errors]


class _Union(BaseModel):
    field: int | str


class _Unbounded(BaseModel):
    field: list[int]


class _Unknown(BaseModel):
    field: Annotated[int, Field(multiple_of=2)]


@pytest.mark.parametrize("model", [_Union, _Unbounded, _Unknown])
def test_what_has_no_structural_form_is_refused_with_its_path(model: type[BaseModel]) -> None:
    with pytest.raises(NotStructuralError, match=rf"{model.__name__}\.field"):
        structural_schema(model)


def test_conditions_are_a_closed_set() -> None:
    assert len(names.Condition) == 16


def test_the_type_reads_what_the_schema_allows() -> None:
    items = [{"index": 0, "mig": {"instances": [{"profile": "1g.10gb", "count": 2}]}}]
    GPUPartitionPlan.read(plan(spec={"gpus": items}))
