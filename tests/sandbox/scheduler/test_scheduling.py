"""The scheduler against an API server: what pods, conditions and Events show. Facts measured on real schedulers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kubernetes.client import ApiClient

from kube import apply, clients
from kube.errors import NotFound
from sandbox.apiserver import ApiServer
from sandbox.apiserver.faults import Disconnect, Refuse
from sandbox.scheduler import BackOff, Scheduler

SLICE = "nvidia.com/mig-1g.10gb"
PODS = "/api/v1/namespaces/default/pods"
DEADLINE_SECONDS = 30.0
Json = dict[str, Any]


class Cluster:
    """An API server with a scheduler, in the words of the tests."""

    def __init__(self, api: ApiClient) -> None:
        self.api = api

    def add_node(self, name: str, *, cpu: int = 8, **extended: int) -> None:
        amounts = {"cpu": str(cpu), "memory": "32Gi", "pods": "2000"}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": {"capacity": amounts, "allocatable": amounts},
        }
        apply.create(self.api, "/api/v1/nodes", body)
        if extended:
            self.offer(name, extended.get("slices", 0))

    def offer(self, node: str, slices: int) -> None:
        amounts = {SLICE: str(slices)}
        body = {"status": {"capacity": amounts, "allocatable": amounts}}
        apply.merge_patch(self.api, f"/api/v1/nodes/{node}/status", body)

    def add_pod(self, name: str, *, slices: int = 0, cpu: str = "", **spec: object) -> None:
        limits = {
            resource: amount for resource, amount in ((SLICE, str(slices)), ("cpu", cpu)) if amount not in ("", "0")
        }
        container = {"name": "c", "image": "x", "resources": {"limits": limits}}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"containers": [container], **spec},
        }
        apply.create(self.api, PODS, body)

    def nominate(self, name: str, node: str) -> None:
        apply.merge_patch(self.api, f"{PODS}/{name}/status", {"status": {"nominatedNodeName": node}})

    def pod(self, name: str) -> Json:
        return apply.get(self.api, f"{PODS}/{name}")

    def node_of(self, name: str) -> str:
        return str(self.pod(name)["spec"].get("nodeName") or "")

    def nomination_of(self, name: str) -> str:
        return str(self.pod(name)["status"].get("nominatedNodeName") or "")

    def condition(self, name: str) -> Json:
        conditions = self.pod(name)["status"].get("conditions") or []
        found: list[Json] = [condition for condition in conditions if condition["type"] == "PodScheduled"]
        return found[0] if found else {}

    def refused(self, name: str) -> bool:
        return self.condition(name).get("status") == "False"

    def wait_refused(self, name: str) -> None:
        until(lambda: self.refused(name), f"{name} is refused")

    def events(self, name: str) -> list[tuple[str, str, str]]:
        events = apply.get(self.api, "/api/v1/namespaces/default/events")["items"]
        return [(e["type"], e["reason"], e["message"]) for e in events if e["involvedObject"]["name"] == name]

    def delete_pod(self, name: str) -> None:
        apply.delete(self.api, f"{PODS}/{name}", grace_seconds=0)


def until(condition: Callable[[], object], what: str = "") -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"did not come about: {what}"
        time.sleep(0.01)


@pytest.fixture
def server() -> Iterator[ApiServer]:
    server = ApiServer()
    server.start()
    yield server
    server.stop()


@contextmanager
def scheduling(server: ApiServer, back_off: BackOff | None = None) -> Iterator[Cluster]:
    scheduler = Scheduler(clients.for_url(server.url), back_off=back_off)
    scheduler.start()
    yield Cluster(clients.for_url(server.url))
    scheduler.stop()


@pytest.fixture
def cluster(server: ApiServer) -> Iterator[Cluster]:
    """Without back-off, so that who goes first does not depend on when each was tried before."""
    with scheduling(server, BackOff(initial_seconds=0.0)) as cluster:
        yield cluster


def test_a_pod_that_fits_is_bound(cluster: Cluster) -> None:
    cluster.add_node("a")
    cluster.add_pod("p", cpu="1")
    until(lambda: cluster.node_of("p") == "a")
    until(lambda: ("Normal", "Scheduled", "Successfully assigned default/p to a") in cluster.events("p"))
    assert cluster.condition("p")["status"] == "True"


def test_a_pod_that_does_not_fit_says_why_and_goes_when_it_fits(cluster: Cluster) -> None:
    cluster.add_node("a")
    cluster.add_pod("p", slices=1)
    cluster.wait_refused("p")
    sentence = (
        "0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb. "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
    condition = cluster.condition("p")
    assert (condition["reason"], condition["message"]) == ("Unschedulable", sentence)
    until(lambda: ("Warning", "FailedScheduling", sentence) in cluster.events("p"))
    cluster.offer("a", 1)
    until(lambda: cluster.node_of("p") == "a")


def test_pods_go_by_priority_then_age(cluster: Cluster) -> None:
    for name, priority in (("old", 0), ("urgent", 10), ("young", 0)):
        cluster.add_pod(name, slices=1, priority=priority)
        cluster.wait_refused(name)
    cluster.add_node("a", slices=2)
    until(lambda: cluster.node_of("urgent") == "a")
    until(lambda: [name for name in ("old", "young") if cluster.node_of(name)] == ["old"])


@pytest.mark.parametrize("leaving", ["deleted", "finished"])
def test_room_that_a_pod_leaves_is_used(cluster: Cluster, leaving: str) -> None:
    cluster.add_node("a", slices=1)
    cluster.add_pod("first", slices=1)
    until(lambda: cluster.node_of("first"))
    cluster.add_pod("second", slices=1)
    cluster.wait_refused("second")
    if leaving == "deleted":
        cluster.delete_pod("first")
    else:
        apply.merge_patch(cluster.api, f"{PODS}/first/status", {"status": {"phase": "Succeeded"}})
    until(lambda: cluster.node_of("second") == "a")


def test_a_taint_that_goes_lets_pods_in(cluster: Cluster) -> None:
    cluster.add_node("a", slices=1)
    taints = [{"key": "gpuplan.dev/changing", "effect": "NoSchedule"}]
    apply.merge_patch(cluster.api, "/api/v1/nodes/a", {"spec": {"taints": taints}})
    cluster.add_pod("p", slices=1)
    cluster.wait_refused("p")
    assert "1 node(s) had untolerated taint(s)" in cluster.condition("p")["message"]
    apply.merge_patch(cluster.api, "/api/v1/nodes/a", {"spec": {"taints": None}})
    until(lambda: cluster.node_of("p") == "a")


def test_others_pods_and_gated_pods_are_left_alone(cluster: Cluster) -> None:
    cluster.add_node("a", slices=2)
    cluster.add_pod("theirs", slices=1, schedulerName="another")
    cluster.add_pod("gated", slices=1, schedulingGates=[{"name": "example.com/wait"}])
    cluster.add_pod("bound", slices=1, nodeName="a")
    cluster.add_pod("first", slices=1)
    until(lambda: cluster.node_of("first"))
    cluster.add_pod("second", slices=1)
    cluster.wait_refused("second")  # the pod that somebody else bound counts
    assert cluster.node_of("theirs") == cluster.node_of("gated") == ""
    assert not cluster.refused("theirs")


def test_a_nomination_stays_until_the_next_failed_attempt(cluster: Cluster) -> None:
    cluster.add_node("a")
    cluster.add_pod("p", slices=1)
    cluster.wait_refused("p")
    cluster.nominate("p", "a")
    cluster.add_node("b")  # does not help: no attempt
    apply.merge_patch(cluster.api, "/api/v1/nodes/a", {"metadata": {"labels": {"x": "y"}}})
    cluster.add_pod("probe", cpu="1")
    until(lambda: cluster.node_of("probe"))
    assert cluster.nomination_of("p") == "a"
    cluster.delete_pod("probe")  # a bound pod went: an attempt, and it fails
    until(lambda: not cluster.nomination_of("p"))


def test_the_nominated_pod_wins_against_an_older_one(cluster: Cluster) -> None:
    cluster.add_node("a")
    for name in ("older", "nominated"):
        cluster.add_pod(name, slices=1)
        cluster.wait_refused(name)
    cluster.nominate("nominated", "a")
    until(lambda: cluster.nomination_of("nominated") == "a")
    cluster.offer("a", 1)
    until(lambda: cluster.node_of("nominated") == "a")
    assert cluster.node_of("older") == ""
    until(lambda: not cluster.nomination_of("nominated"))


def test_a_more_urgent_rival_wins_against_a_nomination(cluster: Cluster) -> None:
    cluster.add_node("a")
    cluster.add_pod("nominated", slices=1)
    cluster.add_pod("urgent", slices=1, priority=5)
    for name in ("nominated", "urgent"):
        cluster.wait_refused(name)
    cluster.nominate("nominated", "a")
    cluster.offer("a", 1)
    until(lambda: cluster.node_of("urgent") == "a")
    until(lambda: not cluster.nomination_of("nominated"))
    assert cluster.node_of("nominated") == ""


def test_a_nomination_for_a_node_that_is_not_there_is_a_hint_only(cluster: Cluster) -> None:
    cluster.add_node("a")
    cluster.add_pod("p", slices=1)
    cluster.wait_refused("p")
    cluster.nominate("p", "gone")
    cluster.offer("a", 1)
    until(lambda: cluster.node_of("p") == "a")


def test_a_nominated_pods_cpu_is_held(cluster: Cluster) -> None:
    cluster.add_node("a", cpu=4)
    cluster.add_pod("nominated", slices=1, cpu="3")
    cluster.wait_refused("nominated")
    cluster.nominate("nominated", "a")
    until(lambda: cluster.nomination_of("nominated") == "a")
    cluster.add_pod("other", cpu="2")
    cluster.wait_refused("other")
    assert "Insufficient cpu" in cluster.condition("other")["message"]
    cluster.delete_pod("nominated")
    until(lambda: cluster.node_of("other") == "a")


def test_pods_spread_over_nodes(cluster: Cluster) -> None:
    for name in ("a", "b", "c"):
        cluster.add_node(name)
    for number in range(6):
        cluster.add_pod(f"p{number}", cpu="1")
    until(lambda: all(cluster.node_of(f"p{number}") for number in range(6)))
    assert sorted(cluster.node_of(f"p{number}") for number in range(6)) == ["a", "a", "b", "b", "c", "c"]


def test_a_restarted_scheduler_goes_on(server: ApiServer) -> None:
    with scheduling(server) as cluster:
        cluster.add_node("a", slices=1)
        cluster.add_pod("first", slices=1)
        until(lambda: cluster.node_of("first"))
        cluster.add_pod("second", slices=1)
        cluster.wait_refused("second")
    cluster.offer("a", 2)
    assert cluster.node_of("second") == ""
    with scheduling(server) as cluster:
        until(lambda: cluster.node_of("second") == "a")


def test_a_deleted_pod_is_forgotten(cluster: Cluster) -> None:
    cluster.add_node("a")
    cluster.add_pod("p", slices=1)
    cluster.wait_refused("p")
    cluster.delete_pod("p")
    cluster.offer("a", 1)
    cluster.add_pod("q", slices=1)
    until(lambda: cluster.node_of("q") == "a")
    with pytest.raises(NotFound):
        cluster.pod("p")


@pytest.mark.parametrize(
    "fault",
    [Refuse(code=500), Refuse(code=409, reason="Conflict"), Disconnect(), Disconnect(after_write=True)],
    ids=["500", "409", "no answer", "no answer, but done"],
)
def test_a_bind_that_fails_is_tried_again(server: ApiServer, cluster: Cluster, fault: Refuse | Disconnect) -> None:
    faults = [fault, fault]
    server.faults.append(lambda request: faults.pop() if request.path.endswith("/binding") and faults else None)
    cluster.add_node("a", slices=1)
    cluster.add_pod("p", slices=1)
    until(lambda: cluster.node_of("p") == "a")
    assert cluster.condition("p")["status"] == "True"
    cluster.add_pod("q", slices=1)
    cluster.wait_refused("q")  # the place was counted once, and only once
    cluster.delete_pod("p")
    until(lambda: cluster.node_of("q") == "a")


def test_a_bind_that_is_refused_for_good_is_told(server: ApiServer) -> None:
    refuse = Refuse(code=403, reason="Forbidden", message="binding is closed")
    server.faults.append(lambda request: refuse if request.path.endswith("/binding") else None)
    with scheduling(server) as cluster:
        cluster.add_node("a")
        cluster.add_pod("p", cpu="1")
        cluster.wait_refused("p")
        condition = cluster.condition("p")
        assert (condition["reason"], condition["message"]) == ("SchedulerError", "binding rejected: binding is closed")
        server.faults.clear()
        until(lambda: cluster.node_of("p") == "a")


@pytest.mark.slow
def test_a_thousand_pods(cluster: Cluster) -> None:
    """All are told why they wait; then a third gets its slices within seconds of their appearing."""
    for number in range(10):
        cluster.add_node(f"n{number}", cpu=400)
    for number in range(1000):
        cluster.add_pod(f"p{number:03}", slices=1 + number % 3)

    def counted(wanted: Callable[[Json], bool]) -> int:
        return sum(1 for item in apply.get(cluster.api, PODS)["items"] if wanted(item))

    def told(item: Json) -> bool:
        return any(c.get("reason") == "Unschedulable" for c in item["status"].get("conditions") or ())

    until(lambda: counted(told) == 1000, "1,000 conditions")
    started = time.monotonic()
    for number in range(10):
        cluster.offer(f"n{number}", 56)
    until(lambda: counted(lambda item: bool(item["spec"].get("nodeName"))) >= 279, "280 pods with 560 slices")
    assert time.monotonic() - started < DEADLINE_SECONDS
