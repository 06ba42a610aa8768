"""A status whose fields come and go is accepted by the API: each field from present to absent, and back."""

from collections.abc import Iterator

import pytest
from kubernetes.client import ApiClient

from crds.v1alpha1 import names
from crds.v1alpha1.status import PlanStatus
from kube import apply, clients
from kube.budget import RequestBudget
from kube.latest import LatestVersion
from nodeagent.desired.plan import ObservedPlan, parse_plan
from nodeagent.report.publish import StatusFailures, StatusWriter, same
from tests.apiserver import ApiServer
from tests.builders.objects import crd, manifest, plan
from tests.crds.status_transitions import FULL, absent_fields, transitions
from tests.drawn import points
from tests.nodeagent.report.agent_and_controller import Silent

NAME = "n1"
PLAN = f"/apis/{names.API_VERSION}/{names.PLURAL}/{NAME}"


@pytest.fixture(scope="module")
def api() -> Iterator[ApiClient]:
    with ApiServer() as server:
        api = clients.for_url(server.url)
        apply.create(api, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd())
        apply.create(api, PLAN.rpartition("/")[0], manifest(plan(NAME)))
        yield api


def write(api: ApiClient, status: PlanStatus) -> None:
    """As the agent does; raises where the API refuses it."""
    latest = LatestVersion[ObservedPlan]()
    writer = StatusWriter(
        api,
        NAME,
        latest,
        RequestBudget(),
        beats=Silent(),
        failures=StatusFailures(),
        clock=lambda: 0.0,
        interval_seconds=1.0,
    )
    assert writer.write(parse_plan(apply.get(api, PLAN)), status.wire()) is None


def test_the_full_status_has_every_field() -> None:
    assert absent_fields(FULL) == []


SOME = points(transitions(), each=3)


@pytest.mark.parametrize(("name", "after"), SOME, ids=[name for name, _ in SOME])
def test_each_field_may_go_and_come_back(api: ApiClient, name: str, after: PlanStatus) -> None:
    write(api, FULL)

    write(api, after)
    live = apply.get(api, PLAN)["status"]
    assert same(after.wire(), live), name
    assert sorted(live) == sorted(after.wire())

    write(api, FULL)
    assert same(FULL.wire(), apply.get(api, PLAN)["status"])
