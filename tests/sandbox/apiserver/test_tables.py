"""Cells of `kubectl get`: ages, JSONPath columns, the status of a pod."""

from datetime import UTC, datetime
from typing import Any

import pytest

from sandbox.apiserver.tables.columns import age, columns_of, compile_path, human_duration
from sandbox.apiserver.tables.nodes import COLUMNS as NODE_COLUMNS
from sandbox.apiserver.tables.pods import COLUMNS as POD_COLUMNS

NOW = datetime(2026, 1, 2, tzinfo=UTC)
MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (9 * MINUTE + 5, "9m5s"),
        (10 * MINUTE + 5, "10m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 5 * MINUTE, "3h5m"),
        (9 * HOUR, "9h"),
        (2 * DAY, "2d"),
        (9 * DAY, "9d"),
    ],
)
def test_durations(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


@pytest.mark.parametrize(
    ("stamp", "text"),
    [("2026-01-01T23:59:00Z", "60s"), (None, "<unknown>"), ("yesterday", "<invalid>"), ("2026-01-01", "<invalid>")],
)
def test_ages(stamp: str | None, text: str) -> None:
    assert age(stamp, NOW) == text


OBJ = {
    "spec": {"a.b": 1, "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2}], "on": False},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.on", [False]),
        ('.status.conditions[?(@.type=="Ready")].status', ["True"]),
        ("{.status.conditions[?(@.type=='Ready')].status}", ["True"]),
        (r".spec.a\.b", [1]),
        (".nothing.at.all", []),
    ],
)
def test_paths(path: str, found: list[Any]) -> None:
    assert compile_path(path)(OBJ) == found


@pytest.mark.parametrize("path", [".spec.list[0:1]", ".spec.list[1].n", ".spec.list[*].v", ".spec['a.b']"])
def test_paths_that_columns_do_not_use_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="cannot read"):
        compile_path(path)


@pytest.mark.parametrize(
    ("type_", "value", "shown"),
    [
        ("string", "a", "a"),
        ("string", 3, "3"),
        ("string", True, "true"),
        ("string", {"a": 1}, '{"a":1}'),
        ("integer", 3.0, 3),
        ("integer", "3", None),
        ("boolean", True, True),
        ("date", "garbage", "<invalid>"),
        ("string", None, None),
    ],
)
def test_custom_cells(type_: str, value: Any, shown: Any) -> None:
    column = columns_of([{"name": "X", "type": type_, "jsonPath": ".spec.x"}])[1]

    assert column.cell({"spec": {"x": value}}) == shown


def test_without_printer_columns_there_is_the_age() -> None:
    assert [column.name for column in columns_of(None)] == ["Name", "Age"]


def container_status(name: str, **state: Any) -> dict[str, Any]:
    return {"name": name, "ready": "running" in state, "restartCount": 0, "state": state}


RUNNING = container_status("a", running={})
POD_CASES = [
    pytest.param({"phase": "Pending"}, {}, ("0/2", "Pending", "0"), id="pending"),
    pytest.param({"phase": "Running", "containerStatuses": [RUNNING]}, {}, ("1/2", "Running", "0"), id="running"),
    pytest.param(
        {"phase": "Pending", "containerStatuses": [container_status("a", waiting={"reason": "ImagePullBackOff"})]},
        {},
        ("0/2", "ImagePullBackOff", "0"),
        id="waiting",
    ),
    pytest.param(
        {"phase": "Succeeded", "containerStatuses": [container_status("a", terminated={"reason": "Completed"})]},
        {},
        ("0/2", "Completed", "0"),
        id="completed",
    ),
    pytest.param(
        {"phase": "Failed", "containerStatuses": [container_status("a", terminated={"exitCode": 3})]},
        {},
        ("0/2", "ExitCode:3", "0"),
        id="exit code",
    ),
    pytest.param(
        {"phase": "Failed", "reason": "UnexpectedAdmissionError"},
        {},
        ("0/2", "UnexpectedAdmissionError", "0"),
        id="rejected",
    ),
    pytest.param(
        {"phase": "Pending", "initContainerStatuses": [container_status("i", running={})]},
        {},
        ("0/2", "Init:0/1", "0"),
        id="initializing",
    ),
    pytest.param(
        {
            "phase": "Pending",
            "initContainerStatuses": [container_status("i", terminated={"exitCode": 1, "reason": "Error"})],
        },
        {},
        ("0/2", "Init:Error", "0"),
        id="init failed",
    ),
    pytest.param(
        {"phase": "Running", "containerStatuses": [RUNNING]},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        ("1/2", "Terminating", "0"),
        id="terminating",
    ),
    pytest.param(
        {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}],
        },
        {},
        ("0/2", "SchedulingGated", "0"),
        id="gated",
    ),
    pytest.param(
        {"phase": "Running", "containerStatuses": [{**RUNNING, "restartCount": 4}]},
        {},
        ("1/2", "Running", "4"),
        id="restarted",
    ),
]


@pytest.mark.parametrize(("status", "metadata", "cells"), POD_CASES)
def test_pods(status: dict[str, Any], metadata: dict[str, Any], cells: tuple[str, ...]) -> None:
    spec = {"containers": [{"name": "a"}, {"name": "b"}], "initContainers": [{"name": "i"}]}
    pod = {"metadata": {"name": "p", **metadata}, "spec": spec, "status": status}

    assert tuple(column.cell(pod) for column in POD_COLUMNS[1:4]) == cells


@pytest.mark.parametrize(
    ("node", "status"),
    [
        ({}, "Unknown"),
        ({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "Ready"),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, "NotReady"),
        ({"spec": {"unschedulable": True}}, "Unknown,SchedulingDisabled"),
    ],
)
def test_nodes(node: dict[str, Any], status: str) -> None:
    assert NODE_COLUMNS[1].cell(node) == status
    assert NODE_COLUMNS[2].cell({"metadata": {"labels": {"node-role.kubernetes.io/gpu": ""}}}) == "gpu"
