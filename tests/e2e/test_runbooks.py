"""Every alert fires on a real Prometheus for its fault, its runbook is followed as it is written, and the alert ends.

Each round makes the faults of its rows at once, on nodes of their own; see `tests.e2e.runbooks`. What an alert waits
for is shortened (`tests.e2e.monitored.HASTENED`), and nothing else of it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping

import pytest

from crds.v1alpha1 import names
from tests.deploy import alert_cases
from tests.e2e.monitored import prometheus_folder
from tests.e2e.rig.controlplane import Binaries, Missing
from tests.e2e.runbooks import agent_rows, controller_rows, node_rows
from tests.e2e.runbooks.row import Row, follow
from tests.e2e.runbooks.stage import Stage

ROUNDS: dict[str, Mapping[str, Row]] = {
    "pods": controller_rows.PODS,
    "plans": node_rows.PLANS,
    "hardware": node_rows.HARDWARE,
    "agents": agent_rows.AGENTS_ROWS,
    "silence": agent_rows.SILENCE,
    "writes": controller_rows.WRITES,
    "delivery": controller_rows.DELIVERY,
    "defects": controller_rows.DEFECTS,
    "watches": controller_rows.WATCHES,
    "leader": controller_rows.LEADER,
}


@pytest.fixture(scope="module")
def stage(programs: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    prometheus = prometheus_folder()
    if isinstance(prometheus, Missing):
        pytest.skip(f"no Prometheus: {prometheus.message}")
    with Stage(programs, prometheus, tmp_path_factory.mktemp("stage")) as found:
        yield found


def test_every_alert_has_a_row() -> None:
    rows = [alert for rows in ROUNDS.values() for alert in rows]
    assert sorted(rows) == sorted(alert_cases.alerts())


@pytest.mark.parametrize("name", ROUNDS)
def test_alerts_fire_for_their_faults_and_their_runbooks_end_them(stage: Stage, name: str) -> None:
    rows = ROUNDS[name]
    stage.clear()
    try:
        for row in rows.values():
            row.inject(stage)
        fired: set[str] = set()  # some end by themselves
        awaiting(stage, "to fire", lambda: rows.keys() - noted(fired, firing(stage, rows)))
        for alert, row in rows.items():
            await_seen(stage, alert, row)
    finally:
        for row in rows.values():
            row.mitigate(stage)
    awaiting(stage, "to end", lambda: firing(stage, rows))


def awaiting(stage: Stage, what: str, others: Callable[[], Collection[str]]) -> None:
    """Until there are no others."""
    stage.eventually(lambda: not others(), what, seen=lambda: (sorted(others()), stage.monitored.alerts()))


def noted(fired: set[str], now: set[str]) -> set[str]:
    fired |= now
    return fired


def firing(stage: Stage, rows: Mapping[str, Row]) -> set[str]:
    """The alerts of these rows that fire with the labels that they must have."""
    found = [(each["alertname"], {**each, "__name__": ""}) for each in stage.monitored.alerts()]
    return {alert for alert, row in rows.items() if (alert, labels(alert, row)) in found}


def labels(alert: str, row: Row) -> dict[str, str]:
    """All that Prometheus shows of the alert."""
    known = {"__name__": "", "alertname": alert, "alertstate": "firing"}
    rule = alert_cases.alerts()[alert]
    every = {**known, "namespace": names.NAMESPACE, **rule["labels"], **row.labels}
    return {label: value for label, value in every.items() if value or label == "__name__"}


def await_seen(stage: Stage, alert: str, row: Row) -> None:
    """Follow the page until its commands print what it says: some of it comes a heartbeat later than the alert."""
    lacking: dict[str, str] = {}

    def seen() -> bool:
        lacking.clear()
        lacking.update(unseen(row, follow(stage, alert, row)))
        return not lacking

    stage.eventually(seen, f"what the page of {alert} shows", seen=lambda: lacking)


def unseen(row: Row, printed: Mapping[str, str]) -> dict[str, str]:
    """Commands whose output lacks what the row expects, or is an error that it does not expect; with the output."""
    lacking = {line: output for line, output in printed.items() if output.lower().startswith("error")}
    for begins, words in row.sees.items():
        outputs = {line: output for line, output in printed.items() if line.removeprefix("kubectl ").startswith(begins)}
        shown = [line for line, output in outputs.items() if words in output]
        if not shown:
            text = "\n".join(outputs.values())[-2000:]
            lacking[f"{begins}: {words}"] = text or "nothing, or no such command on the page"
        for line in shown:
            lacking.pop(line, None)
    return lacking
