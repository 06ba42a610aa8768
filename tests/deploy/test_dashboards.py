"""The chart's dashboards: whole, readable, of metrics that the programs export, and linked to each other."""

import re
from itertools import combinations
from typing import Any

import pytest

from deploy.generate.dashboards.panels import COLUMNS
from docs.generate.metrics import label_names
from tests.deploy import dashboards

OF_ITS_TARGET = {"job", "instance", "namespace", "cluster", "node", "pod"}
DASHBOARDS = dashboards.load()
PANELS = [
    pytest.param(dashboard, panel, id=f"{name}: {panel['title']}")
    for name, dashboard in DASHBOARDS.items()
    for panel in dashboards.panels(dashboard)
]


def test_there_are_four_and_they_link_to_each_other_and_to_the_runbooks() -> None:
    assert sorted(DASHBOARDS) == ["fleet", "node", "planner", "slo"]
    assert len({one["uid"] for one in DASHBOARDS.values()}) == len(DASHBOARDS)
    for one in DASHBOARDS.values():
        links = {(link["type"], link.get("url", "")) for link in one["links"]}
        assert links == {("dashboards", ""), ("link", "docs/runbooks/README.md")}
        assert one["tags"] == ["gpuplan"]
        assert one["schemaVersion"] >= 39


@pytest.mark.parametrize("name", DASHBOARDS)
def test_no_panel_covers_another_or_leaves_the_grid(name: str) -> None:
    boxes = [(panel["title"], panel["gridPos"]) for panel in DASHBOARDS[name]["panels"]]
    assert all(box["x"] + box["w"] <= COLUMNS for _, box in boxes)
    for (one, a), (other, b) in combinations(boxes, 2):
        apart = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"] or a["y"] + a["h"] <= b["y"]
        assert apart or b["y"] + b["h"] <= a["y"], (one, other)
    numbers = [panel["id"] for panel in DASHBOARDS[name]["panels"]]
    assert len(set(numbers)) == len(numbers)


@pytest.mark.parametrize(("dashboard", "panel"), PANELS)
def test_a_panel_explains_itself_and_queries_what_is_exported(dashboard: dict[str, Any], panel: dict[str, Any]) -> None:
    known = label_names()
    variables = {variable["name"] for variable in dashboard["templating"]["list"]} | {"__rate_interval", "__range"}
    assert len(panel["description"]) > 10
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"]["uid"] == "${datasource}"
    for target in panel["targets"]:
        expr = target["expr"]
        assert set(re.findall(r"\$(\w+)", expr)) <= variables
        for metric, matchers in re.findall(r"\b(gpuplan_\w+)\{([^}]*)\}", expr):
            labels = known[re.sub(r"_(total|count|sum|bucket)$", "", metric)] | OF_ITS_TARGET | {"le"}
            assert set(re.findall(r"(\w+)=", re.sub(r'"[^"]*"', "", matchers))) <= labels, metric
        assert not re.findall(r"\b(gpuplan_\w+)(?![\w{])(?=[\[\s)])", expr), "a selector for the release is missing"
        if panel["type"] in ("timeseries", "state-timeline"):
            assert target["legendFormat"]


def test_links_lead_to_dashboards_and_runbooks_that_exist() -> None:
    text = "\n".join(path.read_text() for path in dashboards.FILES)
    assert set(re.findall(r"/d/([\w-]+)", text)) <= {one["uid"] for one in DASHBOARDS.values()}
    assert "docs/runbooks/${__data.fields.alertname}.md" in text
