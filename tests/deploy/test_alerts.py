"""Alerts, runbooks and metrics name each other: no alert without a page and a case, no expression without its metric.

Read without promtool; `tests/e2e/test_alerts.py` runs the cases with it.
"""

import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.actions.metrics import ErrorStage
from controller.model.reasons import UnplacedReason
from crds.v1alpha1.names import NAMESPACE, GpuState, PartitionState
from deploy.generate import manifests
from docs.generate.metrics import label_names
from tests.deploy import alert_cases
from tests.docs.pages import table

RUNBOOKS = alert_cases.ROOT / "docs/runbooks"
ALERTS = alert_cases.alerts()
OF_ITS_TARGET = {"job", "instance", "namespace", "service", "pod", "container", "endpoint"}
"""Labels that Prometheus adds to what it scrapes by a ServiceMonitor."""
HEADINGS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
FOR_EVENTS = {"GpuplanDrift", "GpuplanPodsRefused", "GpuplanMPSRestored"}
"""Something that happened, and is over: they last as long as the window of their expression."""

each_alert = pytest.mark.parametrize("name", ALERTS)


def labels_of(metric: str) -> set[str]:
    """The labels that a series of this name has in Prometheus."""
    if metric == "up":
        return OF_ITS_TARGET | {"node"}
    family = re.sub(r"_(total|count|sum|bucket)$", "", metric)
    own = label_names()[family]
    own = own | {"le"} if metric.endswith("_bucket") else own
    return own | OF_ITS_TARGET | ({"node"} if metric.startswith("gpuplan_agent_") else set())


def selectors(expression: str) -> list[tuple[str, str]]:
    """Every metric that an expression names, with its matchers."""
    return re.findall(r"\b(gpuplan_\w+|up)\b(?:\{([^}]*)\})?", re.sub(r'"gpuplan[^"]*"', '""', expression))


@each_alert
def test_an_alert_names_metrics_and_labels_that_the_programs_export(name: str) -> None:
    expression = ALERTS[name]["expr"]
    found = selectors(expression)
    grouped = {
        label.strip() for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in group.split(",")
    }
    assert found
    for metric, matchers in found:
        matched = set(re.findall(r"(\w+)=~?", re.sub(r'"[^"]*"', '""', matchers)))
        assert matched <= labels_of(metric), metric
    assert all(any(label in labels_of(metric) for metric, _ in found) for label in grouped)


@each_alert
def test_an_alert_says_how_bad_it_is_what_to_do_and_where_to_read_on(name: str) -> None:
    rule = ALERTS[name]
    grouped = {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", rule["expr"]) for label in group.split(",")}
    notes = rule["annotations"]
    shown = {label for text in notes.values() for label in re.findall(r"\$labels\.(\w+)", text)}
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert list(notes) == ["summary", "description", "runbook_url"]
    assert notes["runbook_url"] == f"docs/runbooks/{name}.md"
    assert shown <= grouped


@each_alert
def test_a_rolling_upgrade_is_shorter_than_what_an_alert_waits_for(name: str) -> None:
    assert ("for" in ALERTS[name]) is (name not in FOR_EVENTS)
    assert ALERTS[name].get("for", "5m") in ("5m", "10m", "15m", "20m", "30m", "1h", "4h")


def test_each_stage_of_the_controllers_errors_has_one_alert() -> None:
    text = "\n".join(rule["expr"] for rule in ALERTS.values())
    stages = [stage for found in re.findall(r'stage=~"([^"]*)"', text) for stage in found.split("|")]
    assert sorted(stages) == sorted(ErrorStage)


def test_every_reason_to_wait_has_an_alert_but_those_of_a_step_under_way_or_of_the_pods_own_rules() -> None:
    text = "\n".join(rule["expr"] for rule in ALERTS.values())
    named = {reason for found in re.findall(r'[{,]reason=~?"([^"]*)"', text) for reason in found.split("|")}
    left = {reason for reason in UnplacedReason if reason.routine} | {UnplacedReason.FILTERED_BY_SCHEDULER}
    assert set(UnplacedReason) - named == left


@each_alert
def test_an_alert_names_the_namespace_of_its_series_and_not_the_usual_one(name: str) -> None:
    assert not [text for text in ALERTS[name]["annotations"].values() if NAMESPACE in text]


def test_states_in_expressions_exist() -> None:
    text = "\n".join(rule["expr"] for rule in ALERTS.values())
    states = {state for found in re.findall(r'state=~?"([^"]*)"', text) for state in found.split("|")}
    assert states <= {*map(str, GpuState), *map(str, PartitionState)}


def test_every_alert_has_a_fault_that_fires_it() -> None:
    found = {case["alert"] for case in alert_cases.cases()}
    assert found == set(ALERTS)


def test_faults_and_the_upgrade_are_of_series_that_the_programs_export() -> None:
    series = [name for case in alert_cases.cases() for name in case["series"]] + list(alert_cases.upgrade_series())
    for name in series:
        ((metric, matchers),) = selectors(name)
        assert set(re.findall(r"(\w+)=", re.sub(r'"[^"]*"', '""', matchers))) <= labels_of(metric), name


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert {page.stem for page in RUNBOOKS.glob("*.md")} - {"README"} == set(ALERTS)


@each_alert
def test_a_runbook_has_the_four_headings(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text()
    title, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    assert title.strip() == f"# {name}"
    assert [part.split("\n", 1)[0] for part in parts] == HEADINGS
    assert all(part.split("\n", 1)[1].strip() for part in parts)
    assert "kubectl" in parts[2]


def test_the_index_lists_every_alert_as_it_is() -> None:
    rows = table((RUNBOOKS / "README.md").read_text(), "Alerts")
    assert rows == {
        f"[{name}]({name}.md)": [rule["labels"]["severity"], rule.get("for", "at once")]
        for name, rule in ALERTS.items()
    }


def documents(*kinds: str) -> list[dict[str, Any]]:
    """Of deploy/manifests."""
    return [body for body in rendered() if body["kind"] in kinds]


@cache
def rendered() -> list[dict[str, Any]]:
    texts = [path.read_text() for path in sorted(manifests.FOLDER.glob("*.yaml"))]
    return [body for text in texts for body in yaml.safe_load_all(text) if body]


each_page = pytest.mark.parametrize("page", sorted(RUNBOOKS.glob("*.md")), ids=lambda page: page.stem)


@each_page
def test_commands_name_what_is_installed(page: Path) -> None:
    text = page.read_text()
    named = re.findall(r"\b(deploy|ds) (gpuplan-[\w-]+)", text)
    labels = re.findall(r"app\.kubernetes\.io/name=([\w-]+)", text)
    short = {"deploy": "Deployment", "ds": "DaemonSet"}
    there = {(body["kind"], body["metadata"]["name"]) for body in documents("Deployment", "DaemonSet")}
    assert {(short[kind], name) for kind, name in named} <= there
    assert set(labels) <= {name for _, name in there}


CAN_I = re.compile(
    r"kubectl auth can-i (\w+) ([\w/-]+)(?: --subresource=(\w+))?[^`]*?"
    r"--as=system:serviceaccount:gpuplan-system:([\w-]+)",
    re.DOTALL,
)


def test_rights_that_a_runbook_checks_are_those_that_are_granted() -> None:
    rules: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for role in documents("Role", "ClusterRole"):
        rules.setdefault(role["metadata"]["name"], []).extend(role["rules"])
    checked = [found for page in sorted(RUNBOOKS.glob("*.md")) for found in CAN_I.findall(page.read_text())]
    assert checked
    for verb, resource, subresource, account in checked:
        kind, _, name = resource.partition("/")  # kubectl takes what follows a slash as a name
        meant = f"{kind}/{subresource}" if subresource else kind
        granted = [rule for rule in rules[account] if verb in rule["verbs"] and meant in rule["resources"]]
        assert granted, (verb, resource, account)
        assert all(rule.get("resourceNames", [name]) == [name] for rule in granted)
