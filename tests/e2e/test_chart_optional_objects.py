"""What the chart renders on demand: network policies, monitors, alerts and dashboards."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.generate import manifests
from tests.e2e.rig.controlplane.tenants import objects_of

POLICY = "gpuplan-mps-user"


def test_network_policies_let_metrics_in_and_the_api_server_out(render: Any) -> None:
    text = (
        "networkPolicy: {enabled: true, apiServerPorts: [8443], metricsFrom: {kubernetes.io/metadata.name: monitoring}}"
    )
    found = render(text)
    controller = found.one("NetworkPolicy", "gpuplan-controller")["spec"]
    assert controller["ingress"] == [
        {
            "ports": [{"port": 9840, "protocol": "TCP"}],
            "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        }
    ]
    assert [port["port"] for port in controller["egress"][0]["ports"]] == [53, 53, 8443]
    there = {policy["metadata"]["name"] for policy in found.all("NetworkPolicy")}
    assert there == {"gpuplan-controller", "gpuplan-agent"}, "the others are not in the pod network"


def test_without_a_namespace_that_reads_metrics_no_other_one_does(render: Any) -> None:
    found = render("networkPolicy: {enabled: true}")
    for name in ("gpuplan-controller", "gpuplan-agent"):
        (rule,) = found.one("NetworkPolicy", name)["spec"]["ingress"]
        assert rule["from"] == [{"podSelector": {}}]


def test_metrics_are_read_from_every_pod(render: Any) -> None:
    text = "monitoring: {serviceMonitor: {enabled: true, labels: {release: p}, interval: 30s}}"
    found = render(text)
    for name, port in (("gpuplan-controller", 9840), ("gpuplan-agent", 9841)):
        monitor = found.one("ServiceMonitor", name)
        service = found.one("Service", name)
        workload = found.one("Deployment" if port == 9840 else "DaemonSet", name)["spec"]
        assert monitor["metadata"]["labels"]["release"] == "p"
        assert monitor["spec"]["endpoints"][0]["interval"] == "30s"
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert service["spec"]["selector"].items() <= workload["template"]["metadata"]["labels"].items()
        (container,) = workload["template"]["spec"]["containers"]
        assert container["ports"] == [{"name": service["spec"]["ports"][0]["targetPort"], "containerPort": port}]


@pytest.mark.parametrize(
    ("values", "users"), [("", []), ("mps: {userID: 0}", ["0"]), ("mps: {userID: 1000}", ["1000"])]
)
def test_a_user_of_the_mps_servers_has_a_policy_also_where_it_is_root(
    render: Any, values: str, users: list[str]
) -> None:
    found = [body for body in render(values).all("ValidatingAdmissionPolicy") if body["metadata"]["name"] == POLICY]
    assert [body["spec"]["validations"][0]["message"].rpartition(" ")[2] for body in found] == users


def test_dashboards_have_the_folder_that_the_sidecar_reads(render: Any) -> None:
    found = render("monitoring: {dashboards: {enabled: true, annotations: {grafana_folder: GPUs}}}")
    boards = [body["metadata"] for body in found.all("ConfigMap") if "grafana_dashboard" in body["metadata"]["labels"]]
    assert len(boards) == 4
    assert all(metadata["annotations"] == {"grafana_folder": "GPUs"} for metadata in boards)


def test_alerts_and_dashboards_are_taken_from_the_chart_as_they_are(helm: Path, tmp_path: Path) -> None:
    chart = tmp_path / "chart"
    shutil.copytree(manifests.CHART, chart)
    rules = (
        "groups:\n- name: g\n  rules:\n  - {alert: A, expr: up == 0, annotations: {summary: '{{ $labels.node }}'}}\n"
    )
    for file, content in (("rules/alerts.yaml", rules), ("dashboards/fleet.json", '{"title": "{{node}}"}')):
        (chart / file).parent.mkdir(exist_ok=True)
        (chart / file).write_text(content)
    both = ("--set", "monitoring.prometheusRule.enabled=true,monitoring.dashboards.enabled=true")
    done = manifests.template(helm, *both, chart=chart)
    found = {body["metadata"]["name"]: body for body in objects_of(done.stdout)}
    assert found["gpuplan-alerts"]["spec"] == yaml.safe_load(rules)
    assert found["gpuplan-dashboard-fleet"]["data"] == {"fleet.json": '{"title": "{{node}}"}'}
    assert found["gpuplan-dashboard-fleet"]["metadata"]["labels"]["grafana_dashboard"] == "1"


@pytest.mark.parametrize("base", ["", "https://git.example.com/docs", "https://git.example.com/docs/"])
def test_runbooks_are_read_where_the_value_says(render: Any, base: str) -> None:
    found = render(f"monitoring: {{prometheusRule: {{enabled: true, runbookBaseUrl: '{base}'}}}}").all("PrometheusRule")
    assert {body["metadata"]["name"] for body in found} == {"gpuplan-controller", "gpuplan-agent"}
    rules = [rule for body in found for group in body["spec"]["groups"] for rule in group["rules"]]
    folder = "https://git.example.com/docs" if base else "docs/runbooks"
    assert rules
    for rule in rules:
        assert rule["annotations"]["runbook_url"] == f"{folder}/{rule['alert']}.md"
