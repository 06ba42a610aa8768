"""Figures of the scale runs: percentiles, waiting times, requests by client."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.scale.figures import PodTimes, accounts, client_of, percentile, read_request, table, waits
from benchmarks.scale.processes import Usage, usages, used


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([], 50, None),
        ([7.0], 99, 7.0),
        ([4.0, 1.0, 3.0, 2.0], 50, 2.0),
        ([4.0, 1.0, 3.0, 2.0], 51, 3.0),
        (list(map(float, range(1, 101))), 95, 95.0),
        (list(map(float, range(1, 101))), 100, 100.0),
    ],
)
def test_a_percentile_is_a_value_that_was_measured(values: list[float], percent: float, expected: float | None) -> None:
    assert percentile(values, percent) == expected


def test_each_step_counts_the_pods_that_took_it() -> None:
    pods = [
        PodTimes(created=10, written=20, ready=25, bound=26),
        PodTimes(created=10, written=20, ready=25, bound=24.5),  # bound before we saw the plan Ready
        PodTimes(created=10, ready=5, bound=11),  # its slice was there
        PodTimes(created=10, bound=30),
        PodTimes(created=10),
    ]
    found = waits(pods)
    assert {name: row["pods"] for name, row in found.items()} == {
        "created -> plan written": 2,
        "plan written -> plan Ready": 2,
        "plan Ready -> bound": 2,
        "created -> plan Ready": 2,
        "created -> bound": 3,
    }
    assert found["plan Ready -> bound"]["p50"] == 0.0
    assert found["plan Ready -> bound"]["p99"] == 1.0
    assert found["created -> bound"]["p95"] == 20.0


def line(user: str, verb: str, resource: str = "pods", code: int = 200, **more: Any) -> str:
    return json.dumps(
        {
            "stage": "ResponseComplete",
            "verb": verb,
            "user": {"username": user},
            "objectRef": {"resource": resource},
            "responseStatus": {"code": code},
            "requestReceivedTimestamp": "2026-01-01T00:00:01.500000Z",
            "requestURI": "/somewhere?watch=1",
            **more,
        }
    )


CONTROLLER = "system:serviceaccount:gpuplan-system:gpuplan-controller"
AGENT = "system:serviceaccount:gpuplan-system:gpuplan-agent"


@pytest.mark.parametrize(
    ("user", "client"),
    [
        (CONTROLLER, "controller"),
        (AGENT, "agents"),
        ("system:kube-scheduler", "scheduler"),
        ("system:serviceaccount:kube-system:node-controller", "controller-manager"),
        ("system:kube-controller-manager", "controller-manager"),
        ("system:apiserver", "api server"),
        ("scale-kubelets", "kubelets"),
        ("alice", "alice"),
    ],
)
def test_which_client_is_behind_a_user(user: str, client: str) -> None:
    assert client_of(user) == client


def test_requests_are_counted_once_and_heartbeats_apart() -> None:
    lines = [
        line(AGENT, "patch", "leases"),
        line(AGENT, "patch", "gpupartitionplans", objectRef={"resource": "gpupartitionplans", "subresource": "status"}),
        line(AGENT, "patch", "nodes", 409),
        line(CONTROLLER, "create", "events", 403),
        line(CONTROLLER, "get", "", objectRef=None),
        line(CONTROLLER, "watch", stage="ResponseStarted"),
    ]
    requests = [request for text in lines if (request := read_request(text)) is not None]
    assert [request.at for request in requests] == [1767225601.5] * 5
    found = accounts(requests)
    assert list(found) == ["agents", "controller"]
    agents = found["agents"]
    assert (agents.requests, agents.leases, agents.conflicts, agents.refused) == (3, 1, 1, 0)
    assert agents.per_pod(4) == 0.5
    assert agents.per_pod(0) == 0.0
    assert agents.kinds == {"patch gpupartitionplans/status": 1, "patch leases": 1, "patch nodes": 1}
    assert found["controller"].refused == 1
    assert found["controller"].kinds == {"create events": 1, "get /somewhere": 1}


def process(proc: Path, pid: int, *, ticks: int, peak_kib: int) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    before = " ".join(["S", *["0"] * 10])
    (folder / "stat").write_text(f"{pid} (a (strange) name) {before} {ticks} {ticks} 0 0\n")
    (folder / "status").write_text(f"Name:\tx\nVmHWM:\t{peak_kib} kB\n")


def test_what_processes_used_in_between(tmp_path: Path) -> None:
    process(tmp_path, 1, ticks=500, peak_kib=4096)
    after = usages({"here": 1, "gone": 2, "never": None}, tmp_path)
    assert after["gone"] == after["never"] == Usage()
    found = used({"here": Usage(cpu_seconds=1.0, peak_mib=1)}, after)
    assert found["here"]["cpu_seconds"] == pytest.approx(2 * 500 / 100 - 1.0)
    assert found["here"]["peak_mib"] == 4


def test_the_table_shows_what_is_missing() -> None:
    row = {"requests": 3, "per_pod": 1.5, "leases": 0, "refused": 0, "conflicts": 0}
    text = table(
        {
            "sizes": {"nodes": 1},
            "waits": {"created -> bound": {"pods": 0, "p50": None, "p95": None, "p99": 1.25}},
            "requests": {"controller": row},
            "processes": {"controller": {"cpu_seconds": 0.5, "peak_mib": 60}},
            "counts": {"pods bound": 0},
            "refused": ["scale-0001: pod a refused"],
        }
    )
    assert "created -> bound                   0        -        -      1.2" in text
    assert "controller                         3      1.5" in text
    assert text.splitlines()[-1] == "refused: scale-0001: pod a refused"
