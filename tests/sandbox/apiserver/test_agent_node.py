"""A Node that an agent writes: the requests of tests/e2e that the real policy judges, and the same answers here."""

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client import ApiClient

from crds.v1alpha1.names import AGENT_MANAGER
from kube import apply, clients
from nodeagent.advertise.counts_right import POLICY
from sandbox.apiserver import ApiServer
from tests.e2e import agent_node_requests as requests
from tests.e2e import fleet
from tests.e2e.agent_requests import Case, merge
from tests.e2e.real_cluster import MERGE, NODES, Answer, call

OWN = "own"
PATH = f"{NODES}/{OWN}"
STATUS = f"{PATH}/status"
NODE_CASES = [case for case in requests.NODE_CASES if case.method == "PATCH" and "OTHER" not in case.path]


def of_amount(name: str, says: str = "") -> list[Case]:
    return [
        merge(f"{field} {name}", STATUS, {"status": {field: {name: "1"}}}, says)
        for field in ("capacity", "allocatable")
    ]


AMOUNTS = [
    *(case for name in requests.OUR_RESOURCES for case in of_amount(name)),
    *(case for name in requests.FOREIGN_RESOURCES for case in of_amount(name, requests.ONLY_GPUS)),
]


@pytest.fixture(scope="module")
def api() -> Iterator[ApiClient]:
    server = ApiServer(limits_agents=True).start()
    yield clients.for_url(server.url)
    server.stop()


@pytest.fixture(autouse=True)
def node(api: ApiClient) -> Iterator[None]:
    """The Node as it was before each request."""
    raw = fleet.node(OWN)
    apply.create(api, NODES, raw)
    apply.merge_patch(api, STATUS, {"status": raw["status"]}, manager="kubelet")
    yield
    apply.delete(api, PATH)


def sent(api: ApiClient, case: Case, manager: str) -> Answer:
    body: Any = case.body
    if case.content_type.startswith("application/apply-patch"):
        body = {**body, "metadata": {**body["metadata"], "name": OWN}}
    query = {**case.query, "fieldManager": manager, "dryRun": "All"}
    return call(api, case.method, case.path.replace("OWN", OWN), body, case.content_type, **query)


@pytest.mark.parametrize("case", [*NODE_CASES, *AMOUNTS], ids=lambda case: case.name)
def test_the_agent_gets_the_answer_of_the_real_policy(api: ApiClient, case: Case) -> None:
    answer = sent(api, case, AGENT_MANAGER)
    if not case.says:
        assert answer.allowed, answer
        return
    assert answer.status == 403
    assert f"{POLICY} with binding 'gpuplan-agent-node' denied request: gpuplan agent: " in answer.message
    assert case.says in answer.message


@pytest.mark.parametrize("field", requests.FOREIGN_FIELDS)
def test_the_rest_of_the_status_is_not_the_agents(api: ApiClient, field: str) -> None:
    body = {"status": {field: requests.FOREIGN_FIELDS[field]}}
    answer = call(api, "PATCH", STATUS, body, MERGE, fieldManager=AGENT_MANAGER, dryRun="All")
    if answer.allowed:  # dropped: no field of this version's schema
        assert field == "config"
        assert field not in answer.body["status"]
        return
    assert answer.status == 403
    assert "of a node's status it may change capacity and allocatable only" in answer.message


@pytest.mark.parametrize("case", [case for case in NODE_CASES if case.says], ids=lambda case: case.name)
def test_others_are_not_limited(api: ApiClient, case: Case) -> None:
    assert sent(api, case, "kubectl-edit").allowed
