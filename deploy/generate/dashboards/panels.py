"""The building blocks of the chart's dashboards for Grafana: panels, variables, links, as plain JSON.

Takes queries and words, returns the JSON that Grafana 10 and newer import (schema 39). A row of panels is laid out on
Grafana's grid of 24 columns. Every panel has a description and the unit of its metrics. Nothing here knows gpuplan.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
COLUMNS = 24
SCHEMA_VERSION = 39
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
GREEN, YELLOW, ORANGE, RED, BLUE, GREY = "green", "yellow", "orange", "red", "blue", "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    expr: str
    legend: str = ""
    instant: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel; `width` of 24 columns, `height` in grid rows."""

    title: str
    text: str
    """What it shows, and what to do where it looks bad."""
    kind: str
    queries: tuple[Query, ...]
    width: int = 8
    height: int = 8
    unit: str = "short"
    options: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    transformations: tuple[Json, ...] = ()
    links: tuple[Json, ...] = ()

    def json(self, number: int, x: int, y: int) -> Json:
        return {
            "id": number,
            "type": self.kind,
            "title": self.title,
            "description": self.text,
            "datasource": SOURCE,
            "gridPos": {"x": x, "y": y, "w": self.width, "h": self.height},
            "targets": [
                {
                    "refId": chr(ord("A") + place),
                    "datasource": SOURCE,
                    "expr": query.expr,
                    "legendFormat": query.legend,
                    "instant": query.instant,
                    "range": not query.instant,
                    "format": "table" if self.kind == "table" else "time_series",
                }
                for place, query in enumerate(self.queries)
            ],
            "fieldConfig": {
                "defaults": {"unit": self.unit, "noValue": "none", "links": list(self.links), **self.defaults},
                "overrides": [],
            },
            "options": dict(self.options),
            "transformations": list(self.transformations),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    name: str
    label: str
    query: str
    many: bool = True

    def json(self) -> Json:
        return {
            "name": self.name,
            "label": self.label,
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": self.query, "refId": self.name},
            "definition": self.query,
            "refresh": 2,
            "sort": 1,
            "multi": self.many,
            "includeAll": self.many,
            "allValue": ".*" if self.many else None,
            "current": {"text": "All", "value": "$__all"} if self.many else {},
        }


def stat(title: str, text: str, expr: str, *, unit: str = "short", bad_from: float | None = None, **more: Any) -> Panel:
    """One number, red from `bad_from` on."""
    steps: list[Json] = [{"color": GREEN if bad_from is not None else BLUE, "value": None}]
    if bad_from is not None:
        steps.append({"color": RED, "value": bad_from})
    return Panel(
        title=title,
        text=text,
        kind="stat",
        queries=(Query(expr=expr, instant=True),),
        unit=unit,
        options={"colorMode": "value", "graphMode": "none", "reduceOptions": {"calcs": ["lastNotNull"]}},
        defaults={"thresholds": {"mode": "absolute", "steps": steps}},
        **{"width": 4, "height": 4, **more},
    )


def lines(title: str, text: str, *queries: Query, stacked: bool = False, **more: Any) -> Panel:
    """Series over time."""
    return Panel(
        title=title,
        text=text,
        kind="timeseries",
        queries=queries,
        options={
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        defaults={
            "min": 0,
            "custom": {
                "lineWidth": 1,
                "fillOpacity": 40 if stacked else 8,
                "showPoints": "never",
                "stacking": {"mode": "normal" if stacked else "none"},
            },
        },
        **more,
    )


def table(
    title: str,
    text: str,
    expr: str,
    columns: Sequence[str],
    *,
    value: str = "",
    **more: Any,
) -> Panel:
    """The labels `columns`, and the value under the name `value` where one is given."""
    shown = [*columns, *(["Value"] if value else [])]
    organize = {
        "id": "organize",
        "options": {
            "includeByName": dict.fromkeys(shown, True),
            "indexByName": {name: place for place, name in enumerate(shown)},
            "renameByName": {"Value": value} if value else {},
        },
    }
    return Panel(
        title=title,
        text=text,
        kind="table",
        queries=(Query(expr=expr, instant=True),),
        transformations=(organize,),
        options={"showHeader": True, "sortBy": [{"displayName": value or columns[0], "desc": bool(value)}]},
        **more,
    )


def timeline(title: str, text: str, query: Query, states: Mapping[int, tuple[str, str]], **more: Any) -> Panel:
    """States over time; `states` has word and colour of each value."""
    mapping = {
        str(code): {"text": word, "color": color, "index": place}
        for place, (code, (word, color)) in enumerate(states.items())
    }
    return Panel(
        title=title,
        text=text,
        kind="state-timeline",
        queries=(query,),
        options={"mergeValues": True, "showValue": "never", "rowHeight": 0.85, "legend": {"showLegend": True}},
        defaults={
            "mappings": [{"type": "value", "options": mapping}],
            "custom": {"fillOpacity": 80, "lineWidth": 0},
        },
        **more,
    )


def dashboard(
    uid: str,
    title: str,
    text: str,
    *,
    variables: Iterable[Variable],
    rows: Iterable[tuple[str, Sequence[Panel]]],
    links: Iterable[Json],
    hours: int = 6,
) -> str:
    """The file's text. Each row has a heading; its panels flow from left to right."""
    panels: list[Json] = []
    y = 0
    for heading, members in rows:
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": heading,
                "collapsed": False,
                "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
                "panels": [],
            }
        )
        x, y, tallest = 0, y + 1, 0
        for panel in members:
            if x + panel.width > COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            panels.append(panel.json(len(panels) + 1, x, y))
            x, tallest = x + panel.width, max(tallest, panel.height)
        y += tallest
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}}
    body = {
        "uid": uid,
        "title": title,
        "description": text,
        "tags": ["gpuplan"],
        "schemaVersion": SCHEMA_VERSION,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "timezone": "browser",
        "refresh": "1m",
        "time": {"from": f"now-{hours}h", "to": "now"},
        "templating": {"list": [source, *(variable.json() for variable in variables)]},
        "annotations": {"list": []},
        "links": list(links),
        "panels": panels,
    }
    return json.dumps(body, indent=1) + "\n"
