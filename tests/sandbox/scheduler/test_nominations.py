"""Nominations as the scheduler honours them: tried first, held against others, gone after a failed attempt."""

from kube import apply
from tests.sandbox.scheduler.cluster import ScheduledCluster
from tests.waiting import eventually


def test_a_nomination_stays_until_the_next_failed_attempt(cluster: ScheduledCluster) -> None:
    cluster.add_node("a")
    cluster.add_pod("p", slices=1)
    cluster.wait_refused("p")
    cluster.nominate("p", "a")
    cluster.add_node("b")  # does not help: no attempt
    apply.merge_patch(cluster.api, "/api/v1/nodes/a", {"metadata": {"labels": {"x": "y"}}})
    cluster.add_pod("probe", cpu="1")
    eventually(lambda: cluster.node_of("probe"), "probe on a node")
    assert cluster.nomination_of("p") == "a"
    cluster.delete_pod("probe")  # a bound pod went: an attempt, and it fails
    eventually(lambda: not cluster.nomination_of("p"), "no nomination of p")


def take_all(cluster: ScheduledCluster) -> None:
    """A node whose only slice is held. Its holder ends on the watch of pods, so after what that has reported."""
    cluster.add_node("a", slices=1)
    cluster.add_pod("holder", slices=1)
    eventually(lambda: cluster.node_of("holder") == "a", "holder on node a")


def test_the_nominated_pod_wins_against_an_older_one(cluster: ScheduledCluster) -> None:
    take_all(cluster)
    for name in ("older", "nominated"):
        cluster.add_pod(name, slices=1)
        cluster.wait_refused(name)
    cluster.nominate("nominated", "a")
    cluster.delete_pod("holder")
    eventually(lambda: cluster.node_of("nominated") == "a", "nominated on node a")
    assert cluster.node_of("older") == ""
    eventually(lambda: not cluster.nomination_of("nominated"), "no nomination of nominated")


def test_a_more_urgent_rival_wins_against_a_nomination(cluster: ScheduledCluster) -> None:
    take_all(cluster)
    cluster.add_pod("nominated", slices=1)
    cluster.add_pod("urgent", slices=1, priority=5)
    for name in ("nominated", "urgent"):
        cluster.wait_refused(name)
    cluster.nominate("nominated", "a")
    cluster.delete_pod("holder")
    eventually(lambda: cluster.node_of("urgent") == "a", "urgent on node a")
    eventually(lambda: not cluster.nomination_of("nominated"), "no nomination of nominated")
    assert cluster.node_of("nominated") == ""


def test_a_nomination_for_a_node_that_is_not_there_is_a_hint_only(cluster: ScheduledCluster) -> None:
    cluster.add_node("a")
    cluster.add_pod("p", slices=1)
    cluster.wait_refused("p")
    cluster.nominate("p", "gone")
    cluster.offer("a", 1)
    eventually(lambda: cluster.node_of("p") == "a", "p on node a")


def test_a_nominated_pods_cpu_is_held(cluster: ScheduledCluster) -> None:
    cluster.add_node("a", cpu=4)
    cluster.add_pod("nominated", slices=1, cpu="3")
    cluster.wait_refused("nominated")
    cluster.nominate("nominated", "a")
    eventually(lambda: cluster.nomination_of("nominated") == "a", "nominated nominated for a")
    cluster.add_pod("other", cpu="2")
    cluster.wait_refused("other")
    assert "Insufficient cpu" in cluster.condition("other")["message"]
    cluster.delete_pod("nominated")
    eventually(lambda: cluster.node_of("other") == "a", "other on node a")
