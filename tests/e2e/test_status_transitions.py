"""Real API servers take every status of the agent, whichever optional field has gone since the one before."""

from collections.abc import Iterator

import pytest

from crds.v1alpha1 import names
from crds.v1alpha1.status import PlanStatus
from kube import apply
from nodeagent.report.publish import same
from tests.crds.status_transitions import FULL, body, transitions
from tests.e2e.real_cluster import PLANS, RealCluster, call, plan

NAME = "transitions"
PATH = f"{PLANS}/{NAME}"


@pytest.fixture(scope="module")
def real(cluster: RealCluster) -> Iterator[RealCluster]:
    apply.create(cluster.admin, PLANS, plan(NAME))
    yield cluster
    apply.delete(cluster.admin, PATH)


def write(cluster: RealCluster, status: PlanStatus) -> None:
    """By the request that the agent sends."""
    apply.apply_status(cluster.agent_of(NAME), PATH, body(NAME, status.wire()), manager=names.AGENT_MANAGER)


@pytest.mark.parametrize(("name", "after"), transitions(), ids=[name for name, _ in transitions()])
def test_each_field_may_go_and_come_back(real: RealCluster, name: str, after: PlanStatus) -> None:
    write(real, FULL)

    write(real, after)
    live = apply.get(real.admin, PATH)["status"]
    assert same(after.wire(), live), name
    assert sorted(live) == sorted(after.wire())

    write(real, FULL)
    assert same(FULL.wire(), apply.get(real.admin, PATH)["status"])


def test_an_empty_map_in_place_of_a_full_one_is_refused(real: RealCluster) -> None:
    """Why `PlanStatus.wire` leaves empty maps out; the simulated API server refuses it with the same message."""
    write(real, FULL)

    applied = body(NAME, {**FULL.wire(), "summary": {}})
    answer = call(
        real.agent_of(NAME),
        "PATCH",
        f"{PATH}/status",
        applied,
        "application/apply-patch+yaml",
        fieldManager=names.AGENT_MANAGER,
        force="true",
    )

    assert answer.status == 422
    assert 'summary: Invalid value: "null"' in answer.message
