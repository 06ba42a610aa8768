"""The taint and the counts on the agent's own Node, against the sandbox's API server."""

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client import ApiClient

from crds.v1alpha1.names import TAINT_CHANGING
from kube import apply, clients
from kube.budget import RequestBudget
from kube.errors import Unavailable
from kube.latest import LatestVersion
from nodeagent.advertise.taint import NodeGuard, NodeWriter, lowered, stale
from nodeagent.desired.plan import ObservedPlan
from nodeagent.observed.node import ObservedNode, parse_node
from nodeagent.report.publish import StatusFailures, StatusWriter
from tests.apiserver import ApiServer
from tests.clock import Clock

R = "nvidia.com/mig-1g.10gb"
PATH = "/api/v1/nodes/n"
FOREIGN = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ApiServer() as found:
        yield found


@pytest.fixture
def api(server: ApiServer) -> Iterator[ApiClient]:
    found = clients.for_url(server.url)
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8"}}}
    apply.create(found, "/api/v1/nodes", body)
    yield found
    apply.delete(found, PATH)


def taints(api: ApiClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = apply.get(api, PATH)["spec"].get("taints") or []
    return found


@pytest.mark.parametrize("foreign", [[], [FOREIGN]])
def test_the_taint_comes_and_goes_and_leaves_others_alone(api: ApiClient, foreign: list[dict[str, str]]) -> None:
    apply.merge_patch(api, PATH, {"spec": {"taints": foreign}})
    latest = LatestVersion[ObservedNode]()
    latest.on_event(None, None, parse_node(apply.get(api, PATH)))
    writer = NodeWriter(api, "n", latest, RequestBudget(), clock=Clock())

    assert writer.set_taint(True) == ""
    assert [taint["key"] for taint in taints(api)] == [*(t["key"] for t in foreign), TAINT_CHANGING]
    found = latest.get()
    assert found is not None
    assert found.changing

    before = apply.get(api, PATH)["metadata"]["resourceVersion"]
    assert writer.set_taint(True) == ""
    assert apply.get(api, PATH)["metadata"]["resourceVersion"] == before

    assert writer.set_taint(False) == ""
    assert [taint["key"] for taint in taints(api)] == [t["key"] for t in foreign]


def test_counts_are_written_and_others_kept(api: ApiClient) -> None:
    latest = LatestVersion[ObservedNode]()
    latest.on_event(None, None, parse_node(apply.get(api, PATH)))

    assert NodeWriter(api, "n", latest, RequestBudget(), clock=Clock()).set_counts({R: 3}, {R: 4}) == ""

    status = apply.get(api, PATH)["status"]
    assert status["allocatable"] == {"cpu": "8", R: "3"}
    assert status["capacity"][R] == "4"
    found = latest.get()
    assert found is not None
    assert found.allocatable == {R: 3}


def test_a_failure_is_a_sentence(api: ApiClient) -> None:
    writer = NodeWriter(api, "gone", LatestVersion[ObservedNode](), RequestBudget(), clock=Clock())

    assert "cannot change the taint" in writer.set_taint(True)
    assert "cannot write the Node's allocatable" in writer.set_counts({R: 1}, {R: 1})


@pytest.mark.timeout(60)  # without the budget each of the three requests waits for 30 s
def test_an_api_server_that_never_answers_holds_up_a_pass_only_for_its_budget() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        api = clients.for_url(f"http://127.0.0.1:{silent.getsockname()[1]}")
        budget = RequestBudget(seconds=0.2, shortest_seconds=0.1)
        node = NodeWriter(api, "n", LatestVersion[ObservedNode](), budget, clock=Clock())
        plans = LatestVersion[ObservedPlan]()
        failures = StatusFailures()
        status = StatusWriter(
            api, "n", plans, budget, beats=Beats(), failures=failures, clock=time.monotonic, interval_seconds=0.0
        )
        assert "no answer from the API server" in node.set_taint(True)
        assert "no answer from the API server" in node.set_counts({R: 1}, {R: 1})
        with pytest.raises(Unavailable):
            status.write(ObservedPlan(uid="u", generation=1, version="1", content=None), {"summary": {}})


class Beats:
    taken = 0

    def beat_now(self) -> None:
        return


def observed(changing: bool = False, **counts: int) -> ObservedNode:
    return ObservedNode(
        name="n", uid="u", allocatable={f"nvidia.com/{k}": v for k, v in counts.items()}, changing=changing
    )


def test_absent_and_zero_are_one_thing() -> None:
    assert lowered(observed(a=0, b=2), {"nvidia.com/b": 2}) == ()
    assert lowered(observed(a=1, b=3), {"nvidia.com/b": 2}) == ("nvidia.com/a", "nvidia.com/b")
    assert stale(observed(a=0), {"nvidia.com/b": 0}) == {}
    assert stale(observed(a=1), {"nvidia.com/b": 2}) == {"nvidia.com/a": 0, "nvidia.com/b": 2}


class Writer:
    def __init__(self, answer: str = "") -> None:
        self.done: list[object] = []
        self._answer = answer

    def set_taint(self, present: bool) -> str:
        self.done.append(present)
        return self._answer

    def set_daemons(self, present: bool) -> str:
        self.done.append(f"daemons {present}")
        return self._answer

    def set_counts(self, allocatable: Any, capacity: Any) -> str:
        self.done.append((dict(allocatable), dict(capacity)))
        return self._answer


A = "nvidia.com/a"


@pytest.mark.parametrize(
    ("node", "counts", "done"),
    [
        pytest.param(observed(a=2), {A: 1}, [True], id="lowered"),
        pytest.param(observed(a=2), {A: 2}, [], id="equal"),
        pytest.param(observed(a=2), {A: 3}, [], id="raised"),
        pytest.param(observed(a=2, changing=True), {A: 1}, [], id="tainted already"),
        pytest.param(observed(a=1, other=5), {A: 1}, [], id="another plugin's resource"),
    ],
)
def test_a_list_that_lowers_a_count_waits_for_the_taint(
    node: ObservedNode, counts: dict[str, int], done: list[object]
) -> None:
    writer = Writer()

    assert NodeGuard(writer, write_allocatable=False).before_push(node, counts, [A]) == ""
    assert writer.done == done


def test_a_list_that_lowers_a_count_is_not_sent_without_the_taint_or_the_node() -> None:
    assert NodeGuard(Writer("no"), write_allocatable=False).before_push(observed(a=2), {A: 1}, [A]) == "no"
    assert "was not read" in NodeGuard(Writer(), write_allocatable=False).before_push(None, {A: 1}, [A])
    assert NodeGuard(Writer("no"), write_allocatable=True).before_push(observed(a=2), {A: 1}, [A]) == ""


@pytest.mark.parametrize(
    ("node", "all_withdrawn", "all_allocatable", "write", "done"),
    [
        pytest.param(observed(a=2, changing=True), True, True, False, [], id="the Node still counts more"),
        pytest.param(observed(a=1, changing=True), True, True, False, [False], id="the Node shows it"),
        pytest.param(observed(a=1, changing=True), False, False, False, [], id="the kubelet has not withdrawn it"),
        pytest.param(
            observed(a=0, changing=True), True, False, False, [False], id="the kubelet has less than is advertised"
        ),
        pytest.param(observed(a=2), True, True, True, [({A: 1}, {A: 3})], id="written down"),
        pytest.param(observed(), True, True, True, [({A: 1}, {A: 3})], id="written up"),
        pytest.param(observed(a=2), True, False, True, [], id="not written before it is allocatable"),
        pytest.param(observed(a=1, changing=True), True, True, True, [False], id="a taint from before the option"),
    ],
)
def test_after_the_push(
    node: ObservedNode, all_withdrawn: bool, all_allocatable: bool, write: bool, done: list[object]
) -> None:
    writer = Writer()

    NodeGuard(writer, write_allocatable=write).after_push(
        node, {A: 1}, {A: 3}, [A], all_allocatable=all_allocatable, all_withdrawn=all_withdrawn
    )

    assert writer.done == done


@pytest.mark.parametrize(("node", "write"), [(observed(a=1, changing=True), False), (observed(a=2), True)])
def test_what_could_not_be_written_after_the_push_is_reported(node: ObservedNode, write: bool) -> None:
    guard = NodeGuard(Writer("forbidden"), write_allocatable=write)

    assert guard.after_push(node, {A: 1}, {A: 3}, [A], all_allocatable=True, all_withdrawn=True) == "forbidden"
