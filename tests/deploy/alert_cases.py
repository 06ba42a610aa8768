"""The chart's alerts, and faults for them as promtool's unit tests.

A case of `alerts/*.yaml` names an alert, the series of its fault with one sample a minute from minute 0 (in promtool's
notation; `stale` ends one), the labels that the alert then has, and three minutes: at `silent` no alert fires, at
`fires` this one and no other, at `over` none again. A series with a leader is added where the case has none. The file
`alerts/upgrade.yaml` holds series during which no alert may ever fire.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
RULES = sorted((ROOT / "deploy/chart/rules").glob("*.yaml"))
CASES = Path(__file__).parent / "alerts"
LEADER = 'gpuplan_leader{namespace="g",pod="leader"}'
UPGRADE_MINUTES = 120
FIRING = 'ALERTS{alertstate="firing"}'

Json = dict[str, Any]


def alerts() -> dict[str, Json]:
    """Every rule of the chart by the alert's name."""
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def cases() -> list[Json]:
    """Every fault."""
    return [case for name in ("controller", "agent") for case in yaml.safe_load((CASES / f"{name}.yaml").read_text())]


def upgrade_series() -> dict[str, str]:
    series: dict[str, str] = yaml.safe_load((CASES / "upgrade.yaml").read_text())
    return series


def unit_tests() -> str:
    """All of it as one file for `promtool test rules`."""
    never = {
        "eval_time": f"{UPGRADE_MINUTES}m",
        "expr": f"sum without (alertstate) (count_over_time({FIRING}[{UPGRADE_MINUTES}m]))",
    }
    tests = [*(_of_case(case) for case in cases()), _test(upgrade_series(), never)]
    found = {"rule_files": [str(path) for path in RULES], "evaluation_interval": "1m", "tests": tests}
    return yaml.safe_dump(found, sort_keys=False)


def _of_case(case: Json) -> Json:
    series = dict(case["series"])
    if not any(name.startswith("gpuplan_leader") for name in series):
        series[LEADER] = "1x400"
    labels = {"alertname": case["alert"], **case.get("labels", {})}
    text = ", ".join(f'{name}="{label}"' for name, label in labels.items())
    firing = [{"labels": f"{{{text}}}", "value": 1}]
    return _test(series, _at(case["silent"], []), _at(case["fires"], firing), _at(case["over"], []))


def _at(minute: int, samples: list[Json]) -> Json:
    expr = f"sum without (alertstate, severity, namespace) ({FIRING})"
    return {"eval_time": f"{minute}m", "expr": expr, "exp_samples": samples}


def _test(series: Mapping[str, Any], *expected: Json) -> Json:
    inputs = [{"series": name, "values": str(values)} for name, values in series.items()]
    return {"interval": "1m", "input_series": inputs, "promql_expr_test": list(expected)}
