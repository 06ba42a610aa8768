"""The chart's dashboards as tests read them: their panels, and their queries as Prometheus would get them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "deploy/chart/dashboards").glob("*.json"))
RANGE = "10m"

Json = dict[str, Any]


def load() -> dict[str, Json]:
    """By name of the file."""
    return {path.stem: json.loads(path.read_text()) for path in FILES}


def panels(dashboard: Json) -> list[Json]:
    """Without headings."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, str, str]]:
    """Dashboard, panel and expression, with Grafana's variables still in it."""
    for name, dashboard in load().items():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                yield name, panel["title"], target["expr"]


def filled(expr: str, values: Mapping[str, str] | None = None, *, rate: str = "1m", span: str = RANGE) -> str:
    """The expression with values for the variables; `.*`, which Grafana puts for All, where none is given."""
    for macro, value in (("$__rate_interval", rate), ("$__range", span)):
        expr = expr.replace(macro, value)
    for name in ("cluster", "namespace", "node", "model"):
        expr = expr.replace(f"${name}", (values or {}).get(name, ".*"))
    return expr
