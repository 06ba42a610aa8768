"""The scheduler against an API server: what pods, conditions and Events show. Facts measured on real schedulers."""

from collections.abc import Callable

import pytest

from kube import apply
from kube.errors import NotFound
from tests.apiserver import ApiServer, Disconnect, Refuse
from tests.builders.objects import Json
from tests.sandbox.scheduler.cluster import PODS, ScheduledCluster, scheduling
from tests.waiting import eventually


def test_a_pod_that_fits_is_bound(cluster: ScheduledCluster) -> None:
    cluster.add_node("a")
    cluster.add_pod("p", cpu="1")
    eventually(lambda: cluster.node_of("p") == "a", "p on node a")
    eventually(
        lambda: ("Normal", "Scheduled", "Successfully assigned default/p to a") in cluster.events("p"), "the Event of p"
    )
    assert cluster.condition("p")["status"] == "True"


def test_a_pod_that_does_not_fit_says_why_and_goes_when_it_fits(cluster: ScheduledCluster) -> None:
    cluster.add_node("a")
    cluster.add_pod("p", slices=1)
    cluster.wait_refused("p")
    sentence = (
        "0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb. "
        "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )
    condition = cluster.condition("p")
    assert (condition["reason"], condition["message"]) == ("Unschedulable", sentence)
    eventually(lambda: ("Warning", "FailedScheduling", sentence) in cluster.events("p"), "the Event of p")
    cluster.offer("a", 1)
    eventually(lambda: cluster.node_of("p") == "a", "p on node a")


def test_pods_go_by_priority_then_age(cluster: ScheduledCluster) -> None:
    for name, priority in (("old", 0), ("urgent", 10), ("young", 0)):
        cluster.add_pod(name, slices=1, priority=priority)
        cluster.wait_refused(name)
    cluster.add_node("a", slices=2)
    eventually(lambda: cluster.node_of("urgent") == "a", "urgent on node a")
    eventually(lambda: [name for name in ("old", "young") if cluster.node_of(name)] == ["old"], "old alone on a node")


@pytest.mark.parametrize("leaving", ["deleted", "finished"])
def test_room_that_a_pod_leaves_is_used(cluster: ScheduledCluster, leaving: str) -> None:
    cluster.add_node("a", slices=1)
    cluster.add_pod("first", slices=1)
    eventually(lambda: cluster.node_of("first"), "first on a node")
    cluster.add_pod("second", slices=1)
    cluster.wait_refused("second")
    if leaving == "deleted":
        cluster.delete_pod("first")
    else:
        apply.merge_patch(cluster.api, f"{PODS}/first/status", {"status": {"phase": "Succeeded"}})
    eventually(lambda: cluster.node_of("second") == "a", "second on node a")


def test_a_taint_that_goes_lets_pods_in(cluster: ScheduledCluster) -> None:
    cluster.add_node("a", slices=1)
    taints = [{"key": "gpuplan.dev/changing", "effect": "NoSchedule"}]
    apply.merge_patch(cluster.api, "/api/v1/nodes/a", {"spec": {"taints": taints}})
    cluster.add_pod("p", slices=1)
    cluster.wait_refused("p")
    assert "1 node(s) had untolerated taint(s)" in cluster.condition("p")["message"]
    apply.merge_patch(cluster.api, "/api/v1/nodes/a", {"spec": {"taints": None}})
    eventually(lambda: cluster.node_of("p") == "a", "p on node a")


def test_others_pods_and_gated_pods_are_left_alone(cluster: ScheduledCluster) -> None:
    cluster.add_node("a", slices=2)
    cluster.add_pod("theirs", slices=1, schedulerName="another")
    cluster.add_pod("gated", slices=1, schedulingGates=[{"name": "example.com/wait"}])
    cluster.add_pod("bound", slices=1, nodeName="a")
    cluster.add_pod("first", slices=1)
    eventually(lambda: cluster.node_of("first"), "first on a node")
    cluster.add_pod("second", slices=1)
    cluster.wait_refused("second")  # the pod that another client bound counts
    assert cluster.node_of("theirs") == cluster.node_of("gated") == ""
    assert not cluster.refused("theirs")


def test_pods_spread_over_nodes(cluster: ScheduledCluster) -> None:
    for name in ("a", "b", "c"):
        cluster.add_node(name)
    for number in range(6):
        cluster.add_pod(f"p{number}", cpu="1")
    eventually(lambda: all(cluster.node_of(f"p{number}") for number in range(6)), "all on nodes")
    assert sorted(cluster.node_of(f"p{number}") for number in range(6)) == ["a", "a", "b", "b", "c", "c"]


def test_a_restarted_scheduler_goes_on(server: ApiServer) -> None:
    with scheduling(server) as cluster:
        cluster.add_node("a", slices=1)
        cluster.add_pod("first", slices=1)
        eventually(lambda: cluster.node_of("first"), "first on a node")
        cluster.add_pod("second", slices=1)
        cluster.wait_refused("second")
    cluster.offer("a", 2)
    assert cluster.node_of("second") == ""
    with scheduling(server) as cluster:
        eventually(lambda: cluster.node_of("second") == "a", "second on node a")


def test_a_deleted_pod_is_forgotten(cluster: ScheduledCluster) -> None:
    cluster.add_node("a")
    cluster.add_pod("p", slices=1)
    cluster.wait_refused("p")
    cluster.delete_pod("p")
    cluster.offer("a", 1)
    cluster.add_pod("q", slices=1)
    eventually(lambda: cluster.node_of("q") == "a", "q on node a")
    with pytest.raises(NotFound):
        cluster.pod("p")


@pytest.mark.parametrize(
    "fault",
    [Refuse(code=500), Refuse(code=409, reason="Conflict"), Disconnect(), Disconnect(after_write=True)],
    ids=["500", "409", "no answer", "no answer, but done"],
)
def test_a_bind_that_fails_is_tried_again(
    server: ApiServer, cluster: ScheduledCluster, fault: Refuse | Disconnect
) -> None:
    faults = [fault, fault]
    server.faults.append(lambda request: faults.pop() if request.path.endswith("/binding") and faults else None)
    cluster.add_node("a", slices=1)
    cluster.add_pod("p", slices=1)
    eventually(lambda: cluster.node_of("p") == "a", "p on node a")
    assert cluster.condition("p")["status"] == "True"
    cluster.add_pod("q", slices=1)
    cluster.wait_refused("q")  # the place was counted once, and only once
    cluster.delete_pod("p")
    eventually(lambda: cluster.node_of("q") == "a", "q on node a")


def test_a_bind_that_is_refused_permanently_is_reported(server: ApiServer) -> None:
    refuse = Refuse(code=403, reason="Forbidden", message="binding is closed")
    server.faults.append(lambda request: refuse if request.path.endswith("/binding") else None)
    with scheduling(server) as cluster:
        cluster.add_node("a")
        cluster.add_pod("p", cpu="1")
        cluster.wait_refused("p")
        condition = cluster.condition("p")
        assert (condition["reason"], condition["message"]) == ("SchedulerError", "binding rejected: binding is closed")
        server.faults.clear()
        eventually(lambda: cluster.node_of("p") == "a", "p on node a")


@pytest.mark.slow
@pytest.mark.thorough
def test_a_thousand_pods(cluster: ScheduledCluster) -> None:
    """All get the reason why they wait; then a third gets its slices."""
    for number in range(10):
        cluster.add_node(f"n{number}", cpu=400)
    for number in range(1000):
        cluster.add_pod(f"p{number:03}", slices=1 + number % 3)

    def counted(wanted: Callable[[Json], bool]) -> int:
        return sum(1 for item in apply.get(cluster.api, PODS)["items"] if wanted(item))

    def explained(item: Json) -> bool:
        return any(c.get("reason") == "Unschedulable" for c in item["status"].get("conditions") or ())

    eventually(lambda: counted(explained) == 1000, "1,000 conditions")
    for number in range(10):
        cluster.offer(f"n{number}", 56)
    eventually(lambda: counted(lambda item: bool(item["spec"].get("nodeName"))) >= 279, "280 pods with 560 slices")
