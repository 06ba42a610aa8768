"""devicePlugin.config on a real control plane: what the chart's policies let the controller write, and that it does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient

from crds.v1alpha1 import paths
from kube import apply
from partitioning.nvidia_plugin import CONFIG_LABEL, NodeConfig
from tests.e2e.chart_rendering import Rendered
from tests.e2e.real_cluster import MERGE, NODES, Answer, RealCluster, call
from tests.e2e.test_controller_policy import NAME, controller
from tests.e2e.test_operator_labels import put_policies
from tests.waiting import eventually

__all__ = ["controller"]  # a fixture

PATH, OTHER = (paths.config_map("default", name) for name in ("plugin-configs", "other-configs"))
VALUES = "devicePlugin: {config: {name: plugin-configs, namespace: default}}"
FOUR = NodeConfig(replicas=4)
LABEL = {"metadata": {"labels": {CONFIG_LABEL: FOUR.key}}}


@pytest.fixture
def allowed(cluster: RealCluster, controller: ApiClient, helm: Path, tmp_path: Path) -> Iterator[ApiClient]:
    """The controller, once the policies of these values are in force."""
    for path in (PATH, OTHER):
        body = {"metadata": {"name": path.rpartition("/")[2]}, "data": {"default": "version: v1"}}
        apply.create(cluster.admin, path.rpartition("/")[0], body)
    put_policies(cluster, helm, tmp_path, VALUES)
    eventually(lambda: all(both(controller)), "the policies are in force")
    yield controller
    put_policies(cluster, helm, tmp_path, "")
    eventually(lambda: not any(both(controller)), "the default policies are in force again")
    for path in (PATH, OTHER):
        apply.delete(cluster.admin, path)


def patched(api: ApiClient, data: dict[str, str | None], path: str = PATH, **fields: Any) -> Answer:
    return call(api, "PATCH", path, {"data": data, **fields}, MERGE, dryRun="All")


def both(api: ApiClient) -> tuple[bool, bool]:
    """Whether it may write key and label: two policies, which come into force one after the other."""
    label = call(api, "PATCH", f"{NODES}/{NAME}", LABEL, MERGE, dryRun="All")
    return patched(api, {FOUR.key: FOUR.text}).allowed, label.allowed


def test_it_may_add_its_own_keys_to_one_config_map(cluster: RealCluster, allowed: ApiClient) -> None:
    apply.merge_patch(allowed, PATH, {"data": {FOUR.key: "a text that was spoilt"}})
    assert patched(allowed, {FOUR.key: FOUR.text}).allowed
    wrong: tuple[dict[str, str | None], ...] = (
        {"default": "version: v2"},
        {"default": None},
        {"gpuplan-notes": "a"},
        {FOUR.key: None},
    )
    for data in wrong:
        refused = patched(allowed, data)
        assert refused.status == 403, data
        assert "ConfigMap default/plugin-configs it may write keys gpuplan-* only" in refused.message
    assert patched(allowed, {FOUR.key: FOUR.text}, OTHER).status == 403
    assert patched(allowed, {}, metadata={"labels": {"a": "b"}}).status == 403
    assert patched(allowed, {}, immutable=True).status == 403


@pytest.mark.usefixtures("allowed")
def test_it_may_name_the_config_in_a_nodes_label(controller: ApiClient) -> None:
    path = f"{NODES}/{NAME}"
    assert call(controller, "PATCH", path, LABEL, MERGE, dryRun="All").allowed
    refused = call(controller, "PATCH", path, {"metadata": {"labels": {"a": "b"}}}, MERGE, dryRun="All")
    assert "gpuplan.dev/node-agent and nvidia.com/device-plugin.config only" in refused.message


@pytest.mark.usefixtures("allowed")
def test_it_may_not_replace_what_others_wrote_in_that_label(cluster: RealCluster, controller: ApiClient) -> None:
    path, theirs = f"{NODES}/{NAME}", {"metadata": {"labels": {CONFIG_LABEL: "theirs"}}}
    assert "by gpuplan-*" in call(controller, "PATCH", path, theirs, MERGE, dryRun="All").message
    apply.merge_patch(cluster.admin, path, theirs)
    assert "by gpuplan-*" in call(controller, "PATCH", path, LABEL, MERGE, dryRun="All").message
    agent_label = {"metadata": {"labels": {"gpuplan.dev/node-agent": "true"}}}
    assert call(controller, "PATCH", path, agent_label, MERGE, dryRun="All").allowed
    apply.merge_patch(cluster.admin, path, {"metadata": {"labels": {CONFIG_LABEL: None}}})
    assert call(controller, "PATCH", path, LABEL, MERGE, dryRun="All").allowed


def test_by_default_it_may_write_neither(cluster: RealCluster, controller: ApiClient) -> None:
    apply.create(cluster.admin, OTHER.rpartition("/")[0], {"metadata": {"name": "other-configs"}})
    refused = patched(controller, {FOUR.key: FOUR.text}, OTHER)
    apply.delete(cluster.admin, OTHER)
    assert "may not update configmaps" in refused.message
    assert not call(controller, "PATCH", f"{NODES}/{NAME}", LABEL, MERGE, dryRun="All").allowed


def test_the_role_is_for_this_config_map_alone(helm: Path, tmp_path: Path) -> None:
    found = Rendered(helm, tmp_path, VALUES)
    role = found.one("Role", "gpuplan-controller-nvidia-config")
    assert role["metadata"]["namespace"] == "default"
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["plugin-configs"], "verbs": ["get", "patch"]}
    ]
    mounts = {
        mount["name"]: mount for mount in found.pod("DaemonSet", "gpuplan-agent")["containers"][0]["volumeMounts"]
    }
    for name in ("kubelet-pods", "nvidia-mps"):
        assert mounts[name]["readOnly"]
        # A volume that the kubelet unmounts must not stay mounted, and busy, in the agent.
        assert mounts[name]["mountPropagation"] == "HostToContainer"
    plain = Rendered(helm, tmp_path)
    assert "gpuplan-controller-nvidia-config" not in [body["metadata"]["name"] for body in plain.all("Role")]
