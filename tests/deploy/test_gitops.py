"""The files for Argo CD and Flux: the health rule, run as Argo CD runs it, values that the chart takes, the order."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from lupa.lua51 import LuaRuntime

from crds.v1alpha1 import names
from deploy.generate.manifests import CHART
from tests.builders.objects import condition, plan
from tests.e2e.rig.controlplane.tenants import manifests_of

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy/gitops"
RULE = "resource.customizations.health.gpuplan.dev_GPUPartitionPlan"
READY, CHANGING = condition("Ready", "True", "Confirmed"), condition("Ready", "False", "Changing")
STALLED = condition("Stalled", "True", "MIGModeDisabled")


def health(obj: dict[str, Any]) -> tuple[str, str]:
    """Status and message, by the script in Lua 5.1 with the object as `obj`, as Argo CD calls it."""
    lua = LuaRuntime(unpack_returned_tuples=True)
    rule = yaml.safe_load((FOLDER / "argocd/argocd-cm.yaml").read_text())["data"][RULE]
    lua.globals()["obj"] = lua.table_from(obj, recursive=True)
    found: Any = lua.execute(rule)
    return str(found["status"]), str(found["message"])


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({"observedGeneration": -1}, "Progressing", id="no agent has read it"),
        pytest.param({"observedGeneration": 1, "conditions": [READY]}, "Progressing", id="an older generation"),
        pytest.param({"observedGeneration": 2}, "Progressing", id="no conditions"),
        pytest.param({"observedGeneration": 2, "conditions": [CHANGING]}, "Progressing", id="changing"),
        pytest.param({"observedGeneration": 2, "conditions": [READY]}, "Healthy", id="confirmed"),
        pytest.param({"observedGeneration": 2, "conditions": [READY, STALLED]}, "Degraded", id="stalled"),
        pytest.param({"observedGeneration": 2, "conditions": [STALLED, CHANGING]}, "Degraded", id="stalled is first"),
        pytest.param(
            {"observedGeneration": 2, "conditions": [condition("Ready", "False", "Paused")]}, "Suspended", id="paused"
        ),
        pytest.param(
            {"observedGeneration": 2, "conditions": [condition("Ready", "False", "NodeDisabled")]},
            "Suspended",
            id="the node is not enabled",
        ),
        pytest.param(
            {"observedGeneration": 2, "conditions": [condition("Ready", "Unknown", "AgentSilent")]},
            "Progressing",
            id="the agent is silent",
        ),
    ],
)
def test_argo_cd_reads_a_plan(status: dict[str, Any], expected: str) -> None:
    found = {**plan(), "metadata": {"name": "n", "generation": 2}, "status": status}

    assert health(found)[0] == expected


def test_a_plan_without_status_is_progressing() -> None:
    assert health({"metadata": {"name": "n", "generation": 1}}) == ("Progressing", "Waiting for the node agent.")


@pytest.mark.parametrize("file", sorted(FOLDER.rglob("*.yaml")), ids=lambda path: path.name)
def test_values_in_the_examples_are_values_of_the_chart(file: Path) -> None:
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    for document in yaml.safe_load_all(file.read_text()):
        spec = document.get("spec", {})
        values = spec.get("values") or spec.get("source", {}).get("helm", {}).get("valuesObject")
        if values is not None:
            Draft202012Validator(schema).validate(values)


def kustomized(folder: Path) -> list[dict[str, Any]]:
    """What Flux makes of a folder."""
    kubectl = str(Path(sys.executable).with_name("kubectl"))
    command = [kubectl, "kustomize", "--load-restrictor=LoadRestrictionsNone", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return [body for body in yaml.safe_load_all(done.stdout) if body]


def test_fluxs_two_steps_are_the_manifests_and_policies_come_first(tmp_path: Path) -> None:
    """Within one Kustomization Flux applies rights before policies."""
    steps = {one["metadata"]["name"]: one["spec"] for one in documents("flux/manifests.yaml")}
    rest = {"resources": [os.path.relpath(ROOT / "deploy", tmp_path)], "patches": steps["gpuplan"]["patches"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(rest))

    first, second = (
        {(body["kind"], body["metadata"]["name"]) for body in kustomized(folder)}
        for folder in (ROOT / steps["gpuplan-policies"]["path"], tmp_path)
    )

    assert steps["gpuplan"]["dependsOn"] == [{"name": "gpuplan-policies"}]
    assert steps["gpuplan-policies"]["wait"]
    policies = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
    assert {kind for kind, _ in first} == {*policies, "CustomResourceDefinition"}
    assert not policies & {kind for kind, _ in second}
    crd = {("CustomResourceDefinition", f"{names.PLURAL}.{names.GROUP}")}
    everything = {(body["kind"], body["metadata"]["name"]) for body in kustomized(ROOT / "deploy")}
    assert first | second == everything | crd


def documents(file: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / file).read_text()))


def test_rules_of_policies_name_their_scope() -> None:
    """The API server adds it inside the list; without it here, Argo CD would report a difference permanently."""
    rules = [
        rule
        for body in manifests_of(ROOT / "deploy/manifests")
        if body["kind"] == "ValidatingAdmissionPolicy"
        for name in ("resourceRules", "excludeResourceRules")
        for rule in body["spec"]["matchConstraints"].get(name, [])
    ]
    assert rules
    assert all("scope" in rule for rule in rules)
