"""What each writer does for ten minutes when the API server refuses it: requests, log lines and the error counter."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.apiserver import Refuse
from tests.builders.objects import node
from tests.controller.actions import test_agent_liveness, test_nominations, test_plan_lifecycle
from tests.controller.cluster import Bench
from tests.drawn import thorough

TURN_SECONDS = 0.5
TURNS = 1200


@dataclass(frozen=True)
class Work:
    """One writer, with something to write that the server refuses."""

    stage: str
    method: str
    path: str
    prepare: Callable[[Bench], Callable[[], object]]


def _nominations(bench: Bench) -> Callable[[], object]:
    test_nominations.ready(bench)
    return test_nominations.nominator(bench).run


def _alive(bench: Bench) -> Callable[[], object]:
    work = test_agent_liveness.ready(bench)
    bench.load()
    return work.run


def _taint(bench: Bench) -> Callable[[], object]:
    work = test_agent_liveness.ready(bench)
    test_agent_liveness.taint(bench, "gpuplan.dev/changing")
    bench.load()
    bench.clock.now += 180
    test_agent_liveness.run(bench, work)
    body = bench.cluster.get_node()
    assert "taints" not in body["spec"] or not body["spec"]["taints"]
    test_agent_liveness.taint(bench, "gpuplan.dev/changing")
    bench.load()
    return work.run


def _creation(bench: Bench) -> Callable[[], object]:
    bench.cluster.node(node("n1"))
    bench.load()
    return test_plan_lifecycle.plan_lifecycle(bench).run


WRITERS = {
    "nominations": Work("nominate", "PATCH", "/pods/p/status", _nominations),
    "AgentAlive": Work("status", "PATCH", "/gpupartitionplans/n1/status", _alive),
    "taint": Work("status", "PATCH", "/nodes/n1", _taint),
    "missing plans": Work("lifecycle", "POST", "/gpupartitionplans", _creation),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize(("code", "reports"), [(403, "once"), (429, "each"), (409, "never"), *thorough((422, "once"))])
def test_requests_and_reports(
    bench: Bench, caplog: pytest.LogCaptureFixture, writer: str, code: int, reports: str
) -> None:
    work = WRITERS[writer]
    run = work.prepare(bench)
    requests = 0

    def fault(request: Any) -> Refuse | None:
        nonlocal requests
        if request.method != work.method or not request.path.endswith(work.path):
            return None
        requests += 1
        return Refuse(code=code, message="no, says the policy")

    bench.cluster.server.faults.append(fault)
    with caplog.at_level(logging.WARNING):
        for _ in range(TURNS):
            run()
            bench.clock.now += TURN_SECONDS
    # Pauses of at most 1, 2, 4, ... 32, 60, 60 s, and at least half of that.
    assert 6 <= requests <= 24
    logged = [record for record in caplog.records if "no, says the policy" in record.getMessage()]
    assert len(logged) == bench.errors(work.stage) == {"once": 1, "each": requests, "never": 0}[reports]
