"""The chart as helm renders it, without a cluster: what is refused, and how the programs' own parsers read the rest."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.__main__ import _arguments as parse_controller
from controller.config.options import planner_options
from controller.config.settings import load_settings, read_settings
from crds.v1alpha1 import names
from deploy.generate import __main__ as generate
from deploy.generate import manifests
from kube.settings import load
from nodeagent.__main__ import parse_arguments as parse_agent
from nodeagent.device_plugin.__main__ import parse_arguments as parse_plugin
from nodeagent.settings import Settings as AgentSettings
from tests.deploy.wrong_values import CONTRADICTIONS, WRONG
from tests.e2e.rig.controlplane.tenants import manifests_of, objects_of

GEOMETRIES = "[{models: [A30], allowedGeometries: [{1g.6gb: 4}, {2g.12gb: 2}]}]"


def test_lint_finds_nothing(helm: Path) -> None:
    done = manifests.run(helm, "lint", "--strict", str(manifests.CHART))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stdout


def test_the_manifests_are_what_the_chart_prints(helm: Path) -> None:
    assert generate.main(["--check", "--helm", str(helm)]) == 0
    printed = objects_of(manifests.template(helm, *manifests.OPTIONS).stdout)
    assert sorted(printed, key=str) == sorted(manifests_of(manifests.FOLDER), key=str)


def test_a_kubernetes_that_is_too_old_is_refused(helm: Path) -> None:
    done = manifests.template(helm, "--kube-version", "1.29.9")
    assert done.returncode != 0
    assert "chart requires kubeVersion: >=1.30.0-0" in done.stderr


@pytest.mark.parametrize(("text", "named"), [*WRONG.values(), *CONTRADICTIONS.values()], ids=[*WRONG, *CONTRADICTIONS])
def test_a_wrong_value_is_refused_with_its_name(render: Any, text: str, named: str) -> None:
    assert named in render(text).refusal


def test_the_controller_reads_its_settings(render: Any) -> None:
    text = f"""
    batchWindowTimeoutSeconds: 20
    batchWindowIdleSeconds: 2.5
    knownMigGeometries: {GEOMETRIES}
    scheduler: {{config: {{name: scheduler-config, namespace: sched, key: config.yaml}}}}
    controller:
      metricsPort: 9999
      settings:
        {{improveSteps: 10000000, schedulerNames: [a, b], leaderElection: {{retryPeriodSeconds: 1}}, logLevel: debug}}
    """
    found = render(text, "my-gpus")
    program, *arguments = found.arguments("Deployment", "gpuplan-controller")
    settings = load_settings(parse_controller(arguments).config)

    assert program == "gpuplan-controller"
    assert (settings.batch_window_timeout_seconds, settings.batch_window_idle_seconds) == (20, 2.5)
    assert (settings.namespace, settings.metrics_address, settings.metrics_port) == ("my-gpus", "0.0.0.0", 9999)
    assert (settings.improve_steps, settings.scheduler_names, settings.log_level) == (10_000_000, ("a", "b"), "debug")
    assert settings.leader_election.retry_period_seconds == 1
    assert settings.scheduler.config.model_dump() == {
        "name": "scheduler-config",
        "namespace": "sched",
        "key": "config.yaml",
    }
    geometries = planner_options(settings).geometries
    assert geometries is not None
    assert {key: len(entries) for key, entries in geometries.entries.items()} == {"A30-24GB": 2}
    assert geometries.warnings == ()
    role = found.one("Role", "gpuplan-controller-scheduler-config")
    assert role["metadata"]["namespace"] == "sched"
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["scheduler-config"], "verbs": ["get"]}
    ]


def test_without_values_the_controller_has_the_programs_defaults(render: Any) -> None:
    found = render()
    settings = load_settings(parse_controller(found.arguments("Deployment", "gpuplan-controller")[1:]).config)
    assert settings == read_settings({"metricsAddress": "0.0.0.0"})
    assert found.all("NetworkPolicy") == found.all("ServiceMonitor") == found.all("Service") == []
    assert [body["metadata"]["name"] for body in found.all("Role")] == ["gpuplan-controller", "gpuplan-agent"]


def test_new_settings_make_new_pods(render: Any) -> None:
    def checksum(text: str) -> str:
        template = render(text).one("Deployment", "gpuplan-controller")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    texts = ("", "batchWindowIdleSeconds: 5", f"knownMigGeometries: {GEOMETRIES}", "knownMigGeometries: []")
    checksums = [checksum(text) for text in texts]
    assert checksums[0] == checksums[3]
    assert len(set(checksums)) == 3


def test_agent_and_plugin_read_their_settings(render: Any) -> None:
    text = """
    nodes: {kubeletDir: /data/kubelet, stateDir: /data/gpuplan, mpsDir: /run/mps}
    agent: {metricsPort: 9500, settings: {heartbeatSeconds: 20, writeAllocatable: false}}
    devicePlugin: {logLevel: debug}
    """
    found = render(text)
    agent = parse_agent(found.arguments("DaemonSet", "gpuplan-agent")[1:])
    settings = load(AgentSettings, agent.config)
    assert agent.node_name == "$(NODE_NAME)"
    assert (str(settings.state_dir), str(settings.kubelet_dir)) == ("/data/gpuplan", "/data/kubelet")
    assert (settings.metrics_port, settings.heartbeat_seconds, settings.write_allocatable) == (9500, 20, False)

    words = found.pod("DaemonSet", "gpuplan-device-plugin")["containers"][0]["args"]
    plugin = parse_plugin(words[2:])
    assert words[:2] == ["gpuplan-nodeagent", "plugin"]
    assert [str(plugin.state_dir), str(plugin.kubelet_dir), str(plugin.mps_root)] == [
        "/data/gpuplan",
        "/data/kubelet",
        "/run/mps",
    ]
    assert plugin.log_level == "debug"
    for name in ("gpuplan-agent", "gpuplan-device-plugin"):
        pod = found.pod("DaemonSet", name)
        volumes = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in pod["volumes"]}
        for mount in pod["containers"][0]["volumeMounts"]:
            assert volumes[mount["name"]] in (None, mount["mountPath"].removeprefix("/host"))


@pytest.mark.parametrize("value", [None, True, False])
def test_the_right_to_write_a_node_comes_with_the_policy_that_limits_it(render: Any, value: bool | None) -> None:
    found = render("{}" if value is None else f"agent: {{settings: {{writeAllocatable: {str(value).lower()}}}}}")
    kinds = [body["kind"] for body in found.objects if body["metadata"]["name"] == "gpuplan-agent-allocatable"]
    assert kinds == ([] if value is False else ["ClusterRole", "ClusterRoleBinding"])
    policies = [body["kind"] for body in found.objects if body["metadata"]["name"] == "gpuplan-agent-node"]
    assert policies == ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]


def test_nodes_image_and_labels_are_values(render: Any) -> None:
    digest = f"sha256:{'a' * 64}"
    text = f"""
    image: {{repository: example.com/g, digest: "{digest}", pullPolicy: Always}}
    imagePullSecrets: [{{name: registry}}]
    commonLabels: {{team: gpus}}
    nodes:
      runtimeClassName: nvidia
      selector: {{nvidia.com/gpu.deploy.client: "true"}}
      labels: [{{key: own, values: ["yes"]}}]
      tolerations: []
    """
    found = render(text)
    for kind, name in workloads():
        pod = found.pod(kind, name)
        (container,) = pod["containers"]
        assert (container["image"], container["imagePullPolicy"]) == (f"example.com/g@{digest}", "Always")
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        if kind == "DaemonSet":
            assert pod["runtimeClassName"] == "nvidia"
            assert pod["tolerations"] == [{"key": names.TAINT_CHANGING, "operator": "Exists"}], "its own in any case"
        if name == "gpuplan-mps":
            assert pod["nodeSelector"] == {names.LABEL_MPS_DAEMONS: "true"}, "no label that people change"
        elif kind == "DaemonSet":
            assert pod["nodeSelector"] == {"nvidia.com/gpu.deploy.client": "true"}
            required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            keys = [rule["key"] for term in required["nodeSelectorTerms"] for rule in term["matchExpressions"]]
            assert keys == ["own", names.LABEL_NODE_AGENT]
    assert [
        body["metadata"]["name"] for body in found.objects if body["metadata"]["labels"].get("team") != "gpus"
    ] == []


def test_a_toleration_of_all_taints_stays_alone(render: Any) -> None:
    for given, rendered in (
        ("{operator: Exists}", 1),
        ("{operator: Exists, effect: NoSchedule}", 2),
        ("{key: nvidia.com/gpu, operator: Exists}", 2),
    ):
        pod = render(f"nodes: {{tolerations: [{given}]}}").pod("DaemonSet", "gpuplan-agent")
        assert len(pod["tolerations"]) == rendered


def test_roles_of_people_are_added_to_those_of_kubernetes_by_default(render: Any) -> None:
    def added(text: str) -> dict[str, int]:
        roles = [role for role in render(text).all("ClusterRole") if role["metadata"]["name"] in PEOPLE]
        return {r["metadata"]["name"]: sum("aggregate" in key for key in r["metadata"]["labels"]) for r in roles}

    assert added("") == {"gpuplan-viewer": 3, "gpuplan-author": 2}
    assert added("policies: {aggregateRoles: false}") == dict.fromkeys(PEOPLE, 0)


PEOPLE = ("gpuplan-viewer", "gpuplan-author")


def workloads() -> Iterator[tuple[str, str]]:
    yield "Deployment", "gpuplan-controller"
    yield "DaemonSet", "gpuplan-agent"
    yield "DaemonSet", "gpuplan-device-plugin"
    yield "DaemonSet", "gpuplan-mps"


def test_no_workload_requests_a_gpu_and_all_have_a_read_only_root(render: Any) -> None:
    found = render()
    for kind, name in workloads():
        (container,) = found.pod(kind, name)["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert not [key for part in container["resources"].values() for key in part if "/" in key]


def test_policies_and_rights_know_the_accounts_by_the_values_names(render: Any) -> None:
    text = "{agent: {serviceAccount: {name: a-1}}, controller: {serviceAccount: {name: c-1}}}"
    found = render(text, "my-gpus")
    assert {body["metadata"]["name"] for body in found.all("ServiceAccount")} == {"a-1", "c-1", "gpuplan-device-plugin"}
    subjects = [
        subject for kind in ("RoleBinding", "ClusterRoleBinding") for b in found.all(kind) for subject in b["subjects"]
    ]
    assert {(subject["name"], subject["namespace"]) for subject in subjects} == {("a-1", "my-gpus"), ("c-1", "my-gpus")}
    policies = yaml.safe_dump(found.all("ValidatingAdmissionPolicy"))
    assert "system:serviceaccount:my-gpus:a-1" in policies
    assert "system:serviceaccount:my-gpus:c-1" in policies
    assert names.NAMESPACE not in policies
    assert f"{names.NAMESPACE}:" not in yaml.safe_dump(found.objects)


def test_policies_are_installed_after_workloads_in_the_charts_order(helm: Path) -> None:
    """Helm sorts kinds that it does not know last: a List keeps what is in it together."""
    printed = [body["kind"] for body in yaml.safe_load_all(manifests.template(helm).stdout) if body]
    assert printed[-len([kind for kind in printed if kind == "List"]) :] == ["List"] * printed.count("List")
    kinds = [body["kind"] for body in objects_of(manifests.template(helm).stdout)]
    last_policy = max(n for n, kind in enumerate(kinds) if kind.startswith("ValidatingAdmissionPolicy"))
    assert last_policy < min(n for n, kind in enumerate(kinds) if kind.endswith("RoleBinding"))


def test_one_replica_has_no_disruption_budget(render: Any) -> None:
    assert len(render().all("PodDisruptionBudget")) == 1
    assert render("controller: {replicas: 1}").all("PodDisruptionBudget") == []


def test_the_policy_about_two_resources_can_be_left_out(render: Any) -> None:
    left = {body["metadata"]["name"] for body in render("policies: {oneGpuResourcePerContainer: false}").objects}
    assert "gpuplan-pods" not in left


def test_amounts_that_no_node_has_are_refused_whatever_the_values_say(render: Any) -> None:
    found = render("policies: {oneGpuResourcePerContainer: false, mpsRequests: false}")
    policies = {body["metadata"]["name"]: body["spec"] for body in found.all("ValidatingAdmissionPolicy")}
    bindings = {body["spec"]["policyName"]: body["spec"] for body in found.all("ValidatingAdmissionPolicyBinding")}

    assert not policies.keys() & {"gpuplan-pods", "gpuplan-mps-requests"}
    (rule,) = policies["gpuplan-amounts"]["validations"]
    assert rule["message"] == "a container can request at most 1000 of a GPU resource"
    assert bindings["gpuplan-amounts"]["validationActions"] == ["Deny"]


@pytest.mark.parametrize(("strategy", "any_two"), [("cdi-cri", False), ("envvar", True)])
def test_the_policy_about_two_resources_refuses_what_the_strategy_cannot_deliver(
    render: Any, strategy: str, any_two: bool
) -> None:
    found = render(f"agent: {{settings: {{deviceListStrategy: {strategy}}}}}")
    (policy,) = (body for body in found.all("ValidatingAdmissionPolicy") if body["metadata"]["name"] == "gpuplan-pods")
    (rule,) = policy["spec"]["validations"]
    assert ("one GPU resource only" in rule["message"]) is any_two
    (crowded,) = (each["expression"] for each in policy["spec"]["variables"] if each["name"] == "crowded")
    assert ("exists(r" in crowded) is not any_two
