"""What is worth a pass: pending pods, capacity that changes, reports of the agent; neither noise nor own writes."""

from collections.abc import Callable

import pytest

from controller.api.plan_items import item_of
from tests.builders.objects import SLICE, Json, confirmed, gpu, item, node, partition, plan, pod, status
from tests.builders.views import plan_reading
from tests.controller.cache.state_bench import READY, StateBench, settled


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (pod(), ("pod uid-p",)),
        (pod(unschedulable=False), ()),
        (pod(requests={"cpu": "1"}), ()),
        (pod(requests={"nvidia.com/gpu": "1"}), ("pod uid-p",)),
        (pod(node="n1"), ()),
        # It gets a reason, so it needs a pass.
        (pod(schedulingGates=[{"name": "g"}], unschedulable=False), ("pod uid-p",)),
        (pod(resourceClaims=[{"name": "c"}]), ("pod uid-p",)),
    ],
)
def test_which_pods_open_the_window(raw: Json, expected: tuple[str, ...]) -> None:
    bench = StateBench()
    bench.pod(raw)
    assert bench.triggers() == expected


def test_a_pod_triggers_once_until_its_request_changes() -> None:
    bench = StateBench()
    bench.pod(pod())
    bench.triggers()
    bench.pod(pod(nominated="n1"))
    assert bench.triggers() == ("pod uid-p",)  # a scheduler preempts for it
    bench.pod(pod())
    assert bench.triggers() == ("pod uid-p",)
    bench.pod(pod(tolerations=[{"key": "k", "operator": "Exists"}]))
    assert bench.triggers() == ("pod uid-p",)


def test_our_own_nomination_is_no_news() -> None:
    bench = StateBench()
    bench.pod(pod())
    bench.triggers()
    bench.state.nominate("uid-p", "n1")
    bench.pod(pod(nominated="n1"))
    assert bench.triggers() == ()
    assert bench.state.cluster.snapshot().pending[0].nomination_ours
    bench.pod(pod())
    assert bench.triggers() == ()


def test_a_placed_pod_leaves_the_window() -> None:
    bench = StateBench()
    bench.pod(pod())
    bench.pod(pod(node="n1"))
    assert not bench.window.open


def freed_by_a_bound_pod(bench: StateBench) -> None:
    bench.gone("bound")


def finished(bench: StateBench) -> None:
    bench.pod(pod("bound", node="n1", phase="Succeeded"))


def node_added(bench: StateBench) -> None:
    bench.node(node("n1", uid="other"))


def node_grew(bench: StateBench) -> None:
    bench.node(node("n1", allocatable={SLICE: "2"}))


def partition_freed(bench: StateBench) -> None:
    bench.plan(plan(version=11, planned=[item(0, 3)], status=confirmed(READY, used=[3])))


def pinned(bench: StateBench) -> None:
    bench.plan(plan(version=11, generation=2, planned=[item(0, 3)], spec={"gpus": [{"index": 0, "whole": {}}]}))


def paused(bench: StateBench) -> None:
    bench.plan(plan(version=11, planned=[item(0, 3)], spec={"paused": True}, status=READY["status"]))


def served_by_nvidia(bench: StateBench) -> None:
    spec = {"devicePlugin": {"backend": "nvidia"}}
    bench.plan(plan(version=11, generation=2, planned=[item(0, 3)], spec=spec, status=READY["status"]))


def planned_by_another(bench: StateBench) -> None:
    bench.plan(plan(version=11, generation=2, planned=[item(0, 4)], status=READY["status"]))


CAPACITY: list[Callable[[StateBench], None]] = [
    freed_by_a_bound_pod,
    finished,
    node_added,
    node_grew,
    partition_freed,
    pinned,
    paused,
    served_by_nvidia,
    planned_by_another,
]


@pytest.mark.parametrize("change", CAPACITY)
def test_a_change_of_capacity_is_worth_a_pass_while_a_pod_waits(change: Callable[[StateBench], None]) -> None:
    bench = StateBench()
    settled(bench)
    bench.pod(pod("bound", node="n1"))
    bench.pod(pod("waiting"))
    bench.triggers()
    change(bench)
    assert bench.triggers() == ("node n1",)


@pytest.mark.parametrize("change", CAPACITY)
def test_changes_trigger_no_pass_while_no_pod_waits(change: Callable[[StateBench], None]) -> None:
    bench = StateBench()
    settled(bench)
    bench.pod(pod("bound", node="n1"))
    change(bench)
    assert bench.triggers() == ()


def heartbeat(bench: StateBench) -> None:
    bench.clock.now += 5
    bench.beat()


def conditions_only(bench: StateBench) -> None:
    raw = plan(version=11, planned=[item(0, 3)], status=dict(READY["status"]))
    raw["status"]["summary"] = {"mig": "0/1"}
    bench.plan(raw)


def same_node_again(bench: StateBench) -> None:
    raw = node()
    raw["metadata"]["annotations"] = {"seen": "again"}
    bench.node(raw)


@pytest.mark.parametrize("noise", [heartbeat, conditions_only, same_node_again])
def test_noise_is_not(noise: Callable[[StateBench], None]) -> None:
    bench = StateBench()
    settled(bench)
    bench.pod(pod("waiting"))
    bench.triggers()
    noise(bench)
    assert bench.triggers() == ()


def test_our_own_plan_is_no_news_and_is_known_before_the_watch_brings_it() -> None:
    bench = StateBench()
    settled(bench)
    bench.pod(pod("waiting"))
    bench.triggers()
    answer = plan(version=20, generation=2, planned=[item(0, 3), item(1, 0)], status=READY["status"])
    reading = plan_reading(answer)
    bench.state.expect_planned("n1", reading.planned_json)
    bench.state.plan_answered("n1", reading)
    assert bench.triggers() == ()
    older = plan(version=15, planned=[item(0, 3)], status=confirmed(READY, used=[3]))
    bench.plan(older)
    assert bench.triggers() == ()
    found = bench.state.cluster.plan("n1")
    assert found is not None
    assert [item_of(gpu).index for gpu in found.planned] == [0, 1]
    bench.plan(answer)
    assert bench.triggers() == ()


def test_the_watch_is_believed_where_it_goes_back_since_etcd_was_restored() -> None:
    bench = StateBench()
    settled(bench)
    bench.plan(plan(version=50, generation=3, planned=[item(0, 3), item(1, 0)], status=READY["status"]))

    bench.plan(plan(version=20, generation=2, planned=[item(0, 4)], status=READY["status"]))

    found = bench.state.cluster.plan("n1")
    assert found is not None
    assert (found.version, found.generation) == ("20", 2)
    assert [item_of(gpu).index for gpu in found.planned] == [0]


def test_what_the_agent_makes_of_our_plan_is_news() -> None:
    bench = StateBench()
    settled(bench)
    bench.pod(pod("waiting"))
    bench.triggers()
    answer = plan(version=20, generation=2, planned=[item(0, 4)], status=READY["status"])
    bench.state.expect_planned("n1", plan_reading(answer).planned_json)
    bench.state.plan_answered("n1", plan_reading(answer))
    assert bench.triggers() == ()
    assert bench.state.cluster.plan_views()["n1"].gpus[0].under_way
    done = plan(version=21, generation=2, planned=[item(0, 4)], status=confirmed(answer))
    bench.plan(done)
    assert bench.triggers() == ("node n1",)
    assert bench.state.cluster.plan_views()["n1"].gpus[0].settled


def test_a_used_partition_that_the_plan_lacks_triggers_a_pass_though_no_pod_waits() -> None:
    bench = StateBench()
    settled(bench)
    taken = [partition(3), partition(5, "Used", pod="default/rival")]
    bench.plan(plan(version=11, planned=[item(0, 3)], status=status(gpu(item=item(0, 3), partitions=taken))))
    assert bench.triggers() == ("node n1",)


def test_another_holder_of_a_used_partition_is_worth_a_pass() -> None:
    """Its end and the next pod's start can be in one report; planning drains no partition of an unknown holder."""
    bench = StateBench()
    settled(bench)
    bench.pod(pod("waiting"))
    bench.triggers()
    for version, holder in ((11, "default/ended"), (12, "default/next"), (13, "default/next")):
        held = status(gpu(item=item(0, 3), partitions=[partition(3, "Used", pod=holder)]))
        bench.plan(plan(version=version, planned=[item(0, 3)], status=held))
        assert bench.triggers() == (("node n1",) if version < 13 else ())


@pytest.mark.parametrize(("shown", "expected"), [("default/a", ("node n1",)), ("default/other", ())])
def test_the_bind_of_a_pod_that_a_pass_saw_as_a_holder_and_as_waiting_is_worth_another(
    shown: str, expected: tuple[str, ...]
) -> None:
    """Plans and pods have a watch each: what the agent saw may come first, and a pass then counts the pod twice."""
    bench = StateBench()
    settled(bench)
    for name in ("a", "waiting"):
        bench.pod(pod(name))
    held = status(gpu(item=item(0, 3), partitions=[partition(3, "Used", pod=shown)]))
    bench.plan(plan(version=11, planned=[item(0, 3)], status=held))
    bench.triggers()
    bench.state.reserve({"uid-a": "n1"})
    bench.pod(pod("a", node="n1"))
    assert bench.triggers() == expected
