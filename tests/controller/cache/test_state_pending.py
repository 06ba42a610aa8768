"""What a snapshot has of pending pods beyond their own objects: another's nomination, gangs that have started."""

import pytest

from controller.cache.cluster import FOREIGN_NOMINATION_SECONDS
from controller.model.reasons import UnplacedReason
from controller.planning import plan as planned
from tests.builders.objects import Json, node, pod
from tests.controller.cache.state_bench import StateBench, settled


def bench() -> StateBench:
    made = StateBench()
    settled(made)
    return made


def reasons(made: StateBench) -> list[UnplacedReason]:
    return [one.reason for one in planned(made.state.cluster.snapshot()).unplaced]


def test_a_pod_that_another_nominated_waits_for_its_scheduler() -> None:
    made = bench()
    made.pod(pod(nominated="n1"))
    assert reasons(made) == [UnplacedReason.PREEMPTING]
    made.clock.now += FOREIGN_NOMINATION_SECONDS - 1
    made.pod(pod(nominated="n1"))  # seen again, by no means nominated again
    assert reasons(made) == [UnplacedReason.PREEMPTING]


def test_for_a_while_only() -> None:
    made = bench()
    made.pod(pod(nominated="n1"))
    made.clock.now += FOREIGN_NOMINATION_SECONDS
    assert planned(made.state.cluster.snapshot()).placed[0].node == "n1"
    made.pod(pod(nominated="n2"))
    made.node(node("n2"))
    assert reasons(made) == [UnplacedReason.PREEMPTING]  # another nomination, another wait


def test_a_nomination_to_a_missing_node_does_not_count() -> None:
    made = bench()
    made.pod(pod(nominated="n-gone"))
    assert planned(made.state.cluster.snapshot()).placed[0].node == "n1"


def test_a_node_that_cannot_be_read_is_not_missing() -> None:
    made = bench()
    made.node({**node("n2"), "status": {"allocatable": {"cpu": "much"}}})
    made.pod(pod(nominated="n2"))
    assert reasons(made) == [UnplacedReason.PREEMPTING]


def member(name: str, **fields: object) -> Json:
    raw = pod(name, **fields)  # type: ignore[arg-type]  # by field name
    raw["metadata"]["labels"] = {"kueue.x-k8s.io/pod-group-name": "train"}
    raw["metadata"]["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": "3"}
    return raw


def deleting(raw: Json) -> Json:
    return {**raw, "metadata": {**raw["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}


@pytest.mark.parametrize(("deleted", "finished"), [(False, True), (True, False)])
def test_a_gang_has_started_when_a_member_ended_by_itself(deleted: bool, finished: bool) -> None:
    made = bench()
    made.pod(member("a", node="n1", phase="Running"))
    made.pod(member("b"))
    assert not made.state.cluster.snapshot().finished_gangs
    if deleted:
        made.pod(deleting(member("a", node="n1", phase="Running")))
    made.gone("a")
    assert made.state.cluster.snapshot().finished_gangs == ({("default", "train")} if finished else set())


def test_it_is_forgotten_with_its_last_member() -> None:
    made = bench()
    made.pod(member("a", node="n1", phase="Running"))
    made.gone("a")
    assert not made.state.cluster.snapshot().finished_gangs
    made.pod(member("b"))
    assert not made.state.cluster.snapshot().finished_gangs
