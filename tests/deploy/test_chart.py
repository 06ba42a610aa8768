"""The chart's own files, read without helm: what the values mean, and what their schema refuses."""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from crds.definition import FILE_NAME
from deploy.generate import __main__ as generate
from deploy.generate import files, manifests
from deploy.generate.values import Values
from partitioning import __version__
from tests.deploy.wrong_values import WRONG, values

CHART = manifests.CHART
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)
NOS_GEOMETRIES = Path(__file__).parents[1] / "controller" / "data" / "nos_known_mig_geometries.yaml"


def merged(given: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """As helm merges values."""
    found = dict(default)
    for key, entry in given.items():
        both = isinstance(entry, dict) and isinstance(found.get(key), dict)
        found[key] = merged(entry, found[key]) if both else entry
    return found


def refusal(given: Mapping[str, Any]) -> str:
    """Where and why the schema refuses it; empty where it does not."""
    errors = VALIDATOR.iter_errors(merged(given, yaml.safe_load((CHART / "values.yaml").read_text())))
    error = best_match(errors)
    return "" if error is None else f"/{'/'.join(str(part) for part in error.absolute_path)}: {error.message}"


def test_the_generated_files_are_fresh() -> None:
    assert generate.main(["--check"]) == 0


def test_a_file_that_is_stale_is_named() -> None:
    made = {"deploy/chart/values.yaml": "other", "docs/none.md": "", "docs/values.md": files.values_page()}
    assert generate.stale(made, rendered=False) == ["deploy/chart/values.yaml", "docs/none.md"]


@pytest.mark.parametrize(
    ("file", "old", "new", "same"),
    [
        ("templates/41-agent.yaml", "hostPID: true", "hostPID: false", False),
        ("Chart.yaml", "appVersion: 0.", "appVersion: 9.", False),
        ("values.yaml", "replicas: 2", "replicas: 3", False),
        ("values.yaml", "# Which image", "# The image", True),
        ("values.schema.json", "{", " {", True),
    ],
)
def test_manifests_are_stale_when_helm_would_print_others(
    tmp_path: Path, file: str, old: str, new: str, same: bool
) -> None:
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    text = (chart / file).read_text()
    assert old in text
    (chart / file).write_text(text.replace(old, new, 1))
    assert (manifests.digest(chart) == manifests.digest()) is same


def test_a_manifest_that_was_edited_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(manifests.FOLDER, tmp_path / "manifests")
    monkeypatch.setattr(manifests, "FOLDER", tmp_path / "manifests")
    assert manifests.fresh()
    path = tmp_path / "manifests" / "41-agent.yaml"
    path.write_text(path.read_text().replace("hostPID: true", "hostPID: false"))
    assert not manifests.fresh()


def test_one_file_per_template_with_its_documents_in_order() -> None:
    printed = (
        "---\n# Source: gpuplan/templates/10-b.yaml\nkind: A\n---\n# Source: gpuplan/templates/00-a.yaml\nkind: B\n"
        "---\n# Source: gpuplan/templates/10-b.yaml\nkind: C\n---\n# Source: gpuplan/templates/20-c.yaml\n"
    )
    assert manifests.split(printed) == {"00-a.yaml": "kind: B\n", "10-b.yaml": "kind: A\n---\nkind: C\n"}


def test_a_list_becomes_its_items_with_the_comments_above_them() -> None:
    printed = (
        "---\n# Source: gpuplan/templates/20-a.yaml\n# All of it.\napiVersion: v1\nkind: List\nmetadata: {name: x}\n"
        "items:\n  - kind: A\n    spec:\n      - 1\n  # Of B.\n  - kind: B\n    # Inside.\n    spec: {}\n"
    )
    assert manifests.split(printed) == {
        "20-a.yaml": "# All of it.\nkind: A\nspec:\n  - 1\n---\n# Of B.\nkind: B\n# Inside.\nspec: {}\n"
    }


def test_the_chart_has_the_version_of_the_programs_and_their_crd() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    assert (CHART / "crds" / FILE_NAME).read_text() == (generate.ROOT / "crds" / FILE_NAME).read_text()


def test_every_value_has_a_meaning() -> None:
    assert [".".join(value.path) for value in files.walk(Values) if not value.text] == []


def test_the_defaults_are_accepted() -> None:
    assert refusal({}) == ""


def test_the_programs_settings_are_values_with_their_defaults() -> None:
    settings = {".".join(value.path): value.default for value in files.walk(Values) if "settings" in value.path}
    assert settings["controller.settings.ageingSeconds"] == 600
    assert settings["agent.settings.writeAllocatable"] is True
    assert (
        refusal({"controller": {"settings": {"ageingSeconds": 60, "leaderElection": {"retryPeriodSeconds": 1}}}}) == ""
    )
    assert yaml.safe_load((CHART / "values.yaml").read_text())["controller"]["settings"] == {}


def test_nos_geometries_are_accepted_as_they_are() -> None:
    given = yaml.safe_load(NOS_GEOMETRIES.read_text())
    assert isinstance(given, list)
    assert refusal({"knownMigGeometries": given}) == ""


def test_what_helm_adds_to_a_subchart_is_accepted() -> None:
    assert refusal({"global": {"imageRegistry": "example.com"}}) == ""


@pytest.mark.parametrize(("text", "named"), WRONG.values(), ids=WRONG)
def test_a_wrong_value_is_refused_with_its_name(text: str, named: str) -> None:
    assert named in refusal(values(text))


def test_no_object_of_the_schema_is_open() -> None:
    """A map has a type for its values, everything else names its keys. `global` belongs to helm."""
    opened = [path for path, body in objects(SCHEMA, "") if not closed(body) and path != "/properties/global"]
    assert opened == []


def objects(body: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(body, dict):
        if body.get("type") == "object":
            yield path, body
        for key, entry in body.items():
            yield from objects(entry, f"{path}/{key}")
    elif isinstance(body, list):
        for number, entry in enumerate(body):
            yield from objects(entry, f"{path}/{number}")


def closed(body: Mapping[str, Any]) -> bool:
    if "properties" in body:
        return body.get("additionalProperties") is False
    return isinstance(body.get("additionalProperties"), dict) or "patternProperties" in body
