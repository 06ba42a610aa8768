"""What deploy/ ships, read without a cluster: order, bindings, and the few places that name gpuplan's namespace."""

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from crds.v1alpha1 import names
from nodeagent.device_plugin.__main__ import parse_arguments
from tests.e2e.rig.controlplane.tenants import MANIFESTS, manifests_of, objects_of

DEPLOY = MANIFESTS.parent
ALL = list(manifests_of(MANIFESTS))
POLICIES = [body for body in ALL if body["kind"] == "ValidatingAdmissionPolicy"]
PODS_POLICIES = [  # about everyone's pods
    body for body in POLICIES if body["metadata"]["name"] in ("gpuplan-pods", "gpuplan-mps-requests", "gpuplan-amounts")
]
OF_ACCOUNTS_ALONE = [body for body in POLICIES if body not in PODS_POLICIES]
OF_ACCOUNTS = [
    f"request.userInfo.username {operator} 'system:serviceaccount:{names.NAMESPACE}:{account}'"
    for operator in ("==", "!=")
    for account in ("gpuplan-agent", "gpuplan-controller")
]


def policies_first(objects: Iterable[dict[str, Any]]) -> bool:
    kinds = [body["kind"] for body in objects]
    last_policy = max(n for n, kind in enumerate(kinds) if kind.startswith("ValidatingAdmissionPolicy"))
    first_right = min(n for n, kind in enumerate(kinds) if kind.endswith("RoleBinding"))
    return last_policy < first_right


def test_policies_and_bindings_come_before_the_rights_that_they_narrow() -> None:
    assert policies_first(ALL)


def test_the_overlay_of_the_page_keeps_the_order_and_changes_the_image(tmp_path: Path) -> None:
    shown = re.search(r"```kustomization\n(.*?)```", (DEPLOY / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    base = os.path.relpath(DEPLOY, tmp_path)
    (tmp_path / "kustomization.yaml").write_text(shown[1].replace("../gpuplan/deploy", base))
    command = [str(Path(sys.executable).with_name("kubectl")), "kustomize", str(tmp_path)]
    made = list(objects_of(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout))

    images = {
        container["image"]
        for body in made
        for container in body.get("spec", {}).get("template", {}).get("spec", {}).get("containers", ())
    }
    assert policies_first(made)
    assert images == {"registry.example.com/gpuplan:0.1.0"}


def test_every_policy_is_bound_to_everything_and_denies() -> None:
    bindings = {body["spec"]["policyName"]: body["spec"] for body in ALL if body["kind"].endswith("PolicyBinding")}
    assert bindings == {
        body["metadata"]["name"]: {"policyName": body["metadata"]["name"], "validationActions": ["Deny"]}
        for body in POLICIES
    }


def test_argo_cd_installs_policies_before_everything_else() -> None:
    """It applies kinds that it does not know last, but earlier waves first."""
    waves = {
        body["kind"]: (body["metadata"].get("annotations") or {}).get("argocd.argoproj.io/sync-wave") for body in ALL
    }
    assert {kind for kind, wave in waves.items() if wave == "-1"} == {kind for kind in waves if "Policy" in kind}
    assert set(waves.values()) == {"-1", None}


def test_the_kustomization_has_every_file_in_its_order() -> None:
    found = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    assert found["resources"] == [f"manifests/{path.name}" for path in sorted(MANIFESTS.glob("*.yaml"))]
    assert found["sortOptions"] == {"order": "fifo"}


@pytest.mark.parametrize("policy", OF_ACCOUNTS_ALONE, ids=lambda body: body["metadata"]["name"])
def test_expressions_name_the_namespace_where_they_know_the_account(policy: dict[str, Any]) -> None:
    """One form, which a chart or sed replaces; all else is derived from it."""
    conditions = policy["spec"]["matchConditions"]
    assert conditions[0]["expression"] in OF_ACCOUNTS
    others = [condition for condition in conditions if condition["expression"] not in OF_ACCOUNTS]
    spec = {**policy["spec"], "matchConditions": others}
    assert names.NAMESPACE not in yaml.safe_dump(spec)


def test_the_programs_get_their_namespace() -> None:
    configs = [yaml.safe_load(body["data"]["config.yaml"]) for body in ALL if body["kind"] == "ConfigMap"]
    assert [config["namespace"] for config in configs] == [names.NAMESPACE] * 2


def test_rules_name_resources_and_verbs_one_by_one() -> None:
    for body in ALL:
        for rule in body.get("rules", ()):
            words = [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert "*" not in words
            assert not {"bind", "escalate", "impersonate", "deletecollection"} & set(words)


def container(name: str) -> dict[str, Any]:
    (body,) = [b for b in ALL if b["kind"] in ("DaemonSet", "Deployment") and b["metadata"]["name"] == name]
    (found,) = body["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("name", ["gpuplan-controller", "gpuplan-agent", "gpuplan-device-plugin"])
def test_a_program_that_hangs_is_started_again(name: str) -> None:
    assert container(name)["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_the_probe_of_the_device_plugin_stays_on_the_node_and_is_patient() -> None:
    """Its pod is in the node's network, and each restart takes the node's devices from the kubelet for a moment."""
    found = container("gpuplan-device-plugin")
    probe = found["livenessProbe"]
    assert probe["httpGet"]["host"] == "127.0.0.1"
    assert probe["httpGet"]["port"] == parse_arguments(found["args"][2:]).liveness_port
    others = ("gpuplan-controller", "gpuplan-agent")
    assert probe["httpGet"]["port"] not in [p["containerPort"] for n in others for p in container(n)["ports"]]
    assert probe["initialDelaySeconds"] >= 60
    assert probe["failureThreshold"] >= 3
    assert probe["timeoutSeconds"] >= 5
    assert not {"readinessProbe", "startupProbe"} & found.keys()
