"""The state: what it makes of watches and own writes, and what is worth a pass."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from controller.batcher import Batcher
from controller.heartbeats import Heartbeats
from controller.items import item_of
from controller.parse import read_node, read_pod
from controller.parse_plan import read_plan
from controller.state import State
from controller.views import PlannerOptions
from tests.controller.objects import (
    SLICE,
    Clock,
    Json,
    confirmed,
    gpu,
    item,
    node,
    partition,
    plan,
    pod,
    status,
)


@dataclass
class Bench:
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.window: Batcher[str] = Batcher(idle_seconds=10, timeout_seconds=60, clock=self.clock)
        self.state = State(window=self.window, options=PlannerOptions(), clock=self.clock)

    def pod(self, raw: Json) -> None:
        self.state.observe_pod((raw["metadata"]["namespace"], raw["metadata"]["name"]), read_pod(raw))

    def gone(self, name: str) -> None:
        self.state.observe_pod(("default", name), None)

    def node(self, raw: Json) -> None:
        self.state.observe_node(raw["metadata"]["name"], read_node(raw))

    def plan(self, raw: Json) -> None:
        self.state.observe_plan(raw["metadata"]["name"], read_plan(raw))

    def beat(self, name: str = "n1") -> None:
        self.state.observe_heartbeat(name, f"at {self.clock.now}")

    def triggers(self) -> tuple[str, ...]:
        return self.window.take()


READY = plan(planned=[item(0, 3)]) | {"status": confirmed(plan(planned=[item(0, 3)]))}


def settled(bench: Bench) -> None:
    """One node, its plan confirmed, its agent alive, and nothing to do."""
    bench.node(node())
    bench.beat()
    bench.plan(READY)
    bench.triggers()


def test_the_snapshot_is_sorted_and_split() -> None:
    bench = Bench()
    for name in ("b", "a"):
        bench.pod(pod(name))
        bench.pod(pod(f"{name}-bound", node="n1"))
        bench.node(node(f"n-{name}"))
        bench.plan(plan(f"n-{name}"))
    bench.node(node("n1"))
    bench.pod(pod("finished", node="n1", phase="Succeeded"))
    bench.pod(pod("elsewhere", node="cpu-node"))
    snapshot = bench.state.snapshot()
    assert [p.name for p in snapshot.pending] == ["a", "b"]
    assert [p.name for p in snapshot.pods] == ["a-bound", "b-bound"]
    assert [n.name for n in snapshot.nodes] == ["n-a", "n-b", "n1"]
    assert [p.name for p in snapshot.plans] == ["n-a", "n-b"]


def test_a_pod_that_is_not_bound_twice_is_left_alone() -> None:
    bench = Bench()
    bench.pod(pod())
    for _ in range(2):
        bench.triggers()
        bench.state.promise({"uid-p": "n1"}, ready=["uid-p"])
        bench.clock.now += 60
        bench.state.tick()
        assert bench.triggers() == ("pod uid-p",)

    assert bench.state.snapshot().unbound == {"uid-p": "n1"}


def test_pods_age_while_they_wait() -> None:
    bench = Bench()
    bench.pod(pod("a"))
    bench.clock.now += 600
    bench.pod(pod("b"))

    assert bench.state.snapshot().aged == {bench.state.snapshot().pending[0].uid}

    bench.gone("a")
    assert not bench.state.snapshot().aged


def test_a_node_without_gpus_is_left_out() -> None:
    bench = Bench()
    raw = node(mode=None)
    raw["metadata"]["labels"] = {}
    bench.node(raw)
    assert bench.state.snapshot().nodes == ()


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (pod(), ("pod uid-p",)),
        (pod(unschedulable=False), ()),
        (pod(asks={"cpu": "1"}), ()),
        (pod(asks={"nvidia.com/gpu": "1"}), ("pod uid-p",)),
        (pod(node="n1"), ()),
        # It gets a reason, so it needs a pass.
        (pod(schedulingGates=[{"name": "g"}], unschedulable=False), ("pod uid-p",)),
        (pod(resourceClaims=[{"name": "c"}]), ("pod uid-p",)),
    ],
)
def test_which_pods_open_the_window(raw: Json, expected: tuple[str, ...]) -> None:
    bench = Bench()
    bench.pod(raw)
    assert bench.triggers() == expected


def test_a_pod_asks_once_until_it_asks_for_something_else() -> None:
    bench = Bench()
    bench.pod(pod())
    bench.triggers()
    bench.pod(pod(nominated="n1"))
    assert bench.triggers() == ("pod uid-p",)  # a scheduler preempts for it
    bench.pod(pod())
    assert bench.triggers() == ("pod uid-p",)
    bench.pod(pod(tolerations=[{"key": "k", "operator": "Exists"}]))
    assert bench.triggers() == ("pod uid-p",)


def test_our_own_nomination_is_no_news() -> None:
    bench = Bench()
    bench.pod(pod())
    bench.triggers()
    bench.state.nominate("uid-p", "n1")
    bench.pod(pod(nominated="n1"))
    assert bench.triggers() == ()
    assert bench.state.snapshot().pending[0].nomination_ours
    bench.pod(pod())
    assert bench.triggers() == ()


def test_a_served_pod_leaves_the_window() -> None:
    bench = Bench()
    bench.pod(pod())
    bench.pod(pod(node="n1"))
    assert not bench.window.open


def freed_by_a_bound_pod(bench: Bench) -> None:
    bench.gone("bound")


def finished(bench: Bench) -> None:
    bench.pod(pod("bound", node="n1", phase="Succeeded"))


def node_added(bench: Bench) -> None:
    bench.node(node("n1", uid="other"))


def node_grew(bench: Bench) -> None:
    bench.node(node("n1", **{SLICE: "2"}))


def partition_freed(bench: Bench) -> None:
    bench.plan(plan(version=11, planned=[item(0, 3)], status=confirmed(READY, used=[3])))


def pinned(bench: Bench) -> None:
    bench.plan(plan(version=11, generation=2, planned=[item(0, 3)], spec={"gpus": [{"index": 0, "whole": {}}]}))


def paused(bench: Bench) -> None:
    bench.plan(plan(version=11, planned=[item(0, 3)], spec={"paused": True}, status=READY["status"]))


def planned_by_another(bench: Bench) -> None:
    bench.plan(plan(version=11, generation=2, planned=[item(0, 4)], status=READY["status"]))


CAPACITY: list[Callable[[Bench], None]] = [
    freed_by_a_bound_pod,
    finished,
    node_added,
    node_grew,
    partition_freed,
    pinned,
    paused,
    planned_by_another,
]


@pytest.mark.parametrize("change", CAPACITY)
def test_a_change_of_capacity_is_worth_a_pass_while_a_pod_waits(change: Callable[[Bench], None]) -> None:
    bench = Bench()
    settled(bench)
    bench.pod(pod("bound", node="n1"))
    bench.pod(pod("waiting"))
    bench.triggers()
    change(bench)
    assert bench.triggers() == ("node n1",)


@pytest.mark.parametrize("change", CAPACITY)
def test_and_not_while_nobody_waits(change: Callable[[Bench], None]) -> None:
    bench = Bench()
    settled(bench)
    bench.pod(pod("bound", node="n1"))
    change(bench)
    assert bench.triggers() == ()


def heartbeat(bench: Bench) -> None:
    bench.clock.now += 5
    bench.beat()


def conditions_only(bench: Bench) -> None:
    raw = plan(version=11, planned=[item(0, 3)], status=dict(READY["status"]))
    raw["status"]["summary"] = {"mig": "0/1"}
    bench.plan(raw)


def same_node_again(bench: Bench) -> None:
    raw = node()
    raw["metadata"]["annotations"] = {"seen": "again"}
    bench.node(raw)


@pytest.mark.parametrize("noise", [heartbeat, conditions_only, same_node_again])
def test_noise_is_not(noise: Callable[[Bench], None]) -> None:
    bench = Bench()
    settled(bench)
    bench.pod(pod("waiting"))
    bench.triggers()
    noise(bench)
    assert bench.triggers() == ()


def test_our_own_plan_is_no_news_and_is_known_before_the_watch_brings_it() -> None:
    bench = Bench()
    settled(bench)
    bench.pod(pod("waiting"))
    bench.triggers()
    answer = plan(version=20, generation=2, planned=[item(0, 3), item(1, 0)], status=READY["status"])
    reading = read_plan(answer)
    bench.state.expect_planned("n1", getattr(reading, "planned_json", ""))
    bench.plan(answer)
    assert bench.triggers() == ()
    older = plan(version=15, planned=[item(0, 3)], status=confirmed(READY, used=[3]))
    bench.plan(older)
    assert bench.triggers() == ()
    found = bench.state.plan("n1")
    assert found is not None
    assert [item_of(gpu).index for gpu in found.planned] == [0, 1]
    bench.plan(answer)
    assert bench.triggers() == ()


def test_what_the_agent_makes_of_our_plan_is_news() -> None:
    bench = Bench()
    settled(bench)
    bench.pod(pod("waiting"))
    bench.triggers()
    answer = plan(version=20, generation=2, planned=[item(0, 4)], status=READY["status"])
    bench.state.expect_planned("n1", getattr(read_plan(answer), "planned_json", ""))
    bench.plan(answer)
    assert bench.triggers() == ()
    assert bench.state.plan_views()["n1"].gpus[0].under_way
    done = plan(version=21, generation=2, planned=[item(0, 4)], status=confirmed(answer))
    bench.plan(done)
    assert bench.triggers() == ("node n1",)
    assert bench.state.plan_views()["n1"].gpus[0].settled


def test_a_held_partition_that_the_plan_lacks_is_worth_a_pass_though_nobody_waits() -> None:
    bench = Bench()
    settled(bench)
    taken = [partition(3), partition(5, "Used", pod="default/rival")]
    bench.plan(plan(version=11, planned=[item(0, 3)], status=status(gpu(item=item(0, 3), partitions=taken))))
    assert bench.triggers() == ("node n1",)


def test_deadlines_pass_by_themselves() -> None:
    bench = Bench()
    settled(bench)
    bench.pod(pod("waiting"))
    bench.triggers()
    bench.clock.now += 59
    bench.state.tick()
    assert bench.state.plan_views()["n1"].agent_alive
    bench.clock.now += 1
    bench.state.tick()
    assert not bench.state.plan_views()["n1"].agent_alive
    assert not bench.state.plan_views()["n1"].gpus[0].settled
    assert bench.triggers() == ("node n1",)
    assert bench.state.agent_silent_for("n1") == 60
    bench.beat()
    assert bench.state.plan_views()["n1"].gpus[0].settled
    assert bench.triggers() == ("node n1",)


def test_a_gpu_that_takes_too_long_is_supply_no_more() -> None:
    bench = Bench()
    settled(bench)
    bench.plan(plan(version=11, generation=2, planned=[item(0, 4)], status=READY["status"]))
    assert bench.state.plan_views()["n1"].gpus[0].under_way
    for _ in range(10):
        bench.clock.now += 30
        bench.beat()
        bench.state.tick()
    view = bench.state.plan_views()["n1"].gpus[0]
    assert (view.settled, view.under_way) == (False, False)


@pytest.mark.parametrize(
    "raw", [plan(planned=[item(0, 3)], spec={"paused": True}, status=status(gpu(state="Changing")))]
)
def test_nothing_is_expected_of_a_paused_plan(raw: Json) -> None:
    bench = Bench()
    bench.node(node())
    bench.beat()
    bench.plan(raw)
    assert not bench.state.plan_views()["n1"].gpus[0].under_way


def test_a_status_about_an_earlier_node_settles_nothing() -> None:
    bench = Bench()
    bench.node(node(uid="another"))
    bench.beat()
    bench.plan(READY)
    assert not bench.state.plan_views()["n1"].gpus[0].settled


def test_promises_last_until_the_pod_is_bound_or_gone() -> None:
    bench = Bench()
    for name in ("a", "b", "c", "other"):
        bench.pod(pod(name))
    bench.state.promise({"uid-a": "n1", "uid-b": "n1", "uid-c": "n2", "uid-long-gone": "n3"})
    assert bench.state.promises() == {"uid-a": "n1", "uid-b": "n1", "uid-c": "n2"}
    bench.triggers()
    bench.pod(pod("a", node="n1"))
    assert bench.triggers() == ()  # as promised: nothing is left for the others
    bench.pod(pod("b", node="n5"))
    assert bench.triggers() == ("node n1",)
    bench.gone("c")
    assert bench.triggers() == ("node n2",)
    assert bench.state.promises() == {}


def test_a_pod_that_was_deleted_and_created_anew_is_another_pod() -> None:
    bench = Bench()
    bench.pod(pod(uid="one"))
    bench.state.promise({"one": "n1"})
    bench.pod(pod(uid="two"))
    assert bench.triggers() == ("pod two", "node n1")
    assert bench.state.promises() == {}


def test_a_broken_object_is_left_out_and_the_rest_goes_on() -> None:
    bench = Bench()
    settled(bench)
    broken = plan(version=11, spec={"gpus": "none"})
    bench.plan(broken)
    assert bench.state.snapshot().plans == ()
    assert bench.state.plan_exists("n1")
    assert [key for key in bench.state.unreadable()] == [("plan", "n1")]
    bench.plan(READY | {"metadata": READY["metadata"] | {"resourceVersion": "12"}})
    assert [view.name for view in bench.state.snapshot().plans] == ["n1"]
    assert bench.state.unreadable() == {}


BAD_TIME = {"creationTimestamp": "yesterday"}
BAD_AMOUNTS: Json = {"containers": [{"name": "main", "resources": {"limits": {SLICE: "some"}}}]}


def broken(raw: Json, metadata: Json | None = None, spec: Json | None = None) -> Json:
    return raw | {"metadata": raw["metadata"] | (metadata or {}), "spec": raw["spec"] | (spec or {})}


@pytest.mark.parametrize("readable_before", [False, True])
def test_a_bound_pod_holds_its_slices_whatever_else_is_wrong_with_it(readable_before: bool) -> None:
    bench = Bench()
    settled(bench)
    held = pod("holder", node="n1", asks={SLICE: "2"})
    if readable_before:
        bench.pod(held)
    bench.pod(broken(held, metadata=BAD_TIME))
    assert [found.gpu for found in bench.state.snapshot().pods] == [((SLICE, 2),)]
    assert [found.gpu for found in bench.state.gpu_pods("n1")] == [((SLICE, 2),)]
    assert list(bench.state.unreadable()) == [("pod", "default/holder")]
    bench.gone("holder")
    assert bench.state.snapshot().pods == ()
    assert bench.state.unreadable() == {}


@pytest.mark.parametrize("before", [pod("holder", node="n1"), pod("holder")], ids=["bound", "pending"])
def test_amounts_that_cannot_be_read_are_the_last_ones_that_could(before: Json) -> None:
    bench = Bench()
    settled(bench)
    bench.pod(before)
    bench.pod(broken(pod("holder", node="n1"), spec=BAD_AMOUNTS))
    snapshot = bench.state.snapshot()
    assert [found.gpu for found in snapshot.pods] == [((SLICE, 1),)]
    assert snapshot.pending == ()
    bench.pod(pod("holder", node="n1", phase="Succeeded"))
    assert bench.state.snapshot().pods == ()


def test_a_pod_of_which_nothing_can_be_read_any_more_is_still_there() -> None:
    bench = Bench()
    settled(bench)
    bench.pod(pod("holder", node="n1"))
    bench.state.observe_pod(("default", "holder"), read_pod({"metadata": {"name": "holder"}, "spec": "none"}))
    assert [found.gpu for found in bench.state.snapshot().pods] == [((SLICE, 1),)]


def test_nothing_is_planned_where_a_pod_holds_nobody_knows_what() -> None:
    bench = Bench()
    settled(bench)
    bench.pod(pod("before", node="n1", uid="another"))
    bench.pod(broken(pod("holder", node="n1"), spec=BAD_AMOUNTS))
    assert bench.state.snapshot().nodes == ()
    assert bench.state.snapshot().pods == ()
    bench.pod(pod("waits"))
    bench.triggers()
    bench.pod(broken(pod("holder", node="n1", phase="Failed"), spec=BAD_AMOUNTS))
    assert bench.triggers() == ("node n1",)
    assert [found.name for found in bench.state.snapshot().nodes] == ["n1"]
    bench.pod(broken(pod("waiting"), spec=BAD_AMOUNTS))  # holds nothing
    assert [found.name for found in bench.state.snapshot().nodes] == ["n1"]


def test_an_answer_that_comes_after_the_deletion_revives_nothing() -> None:
    bench = Bench()
    settled(bench)
    bench.state.observe_plan("n1", None)
    bench.plan(plan(version=30, generation=2))
    assert not bench.state.plan_exists("n1")
    bench.plan(plan(version=31, uid="another"))
    assert bench.state.plan_exists("n1")


def test_odd_labels_are_remarked_on_once() -> None:
    remarks: list[tuple[str, str]] = []
    bench = Bench()
    bench.state = State(
        window=bench.window,
        options=PlannerOptions(),
        clock=bench.clock,
        remark=lambda seen, text: remarks.append((seen.name, text)),
    )
    raw = node(mode="mips")
    for _ in range(2):
        bench.node(raw)
    raw["metadata"]["labels"]["another"] = "label"
    bench.node(raw)
    assert [name for name, _ in remarks] == ["n1"]
    assert "use one of mig, mps, auto" in remarks[0][1]


def test_what_is_long_gone_is_forgotten() -> None:
    bench = Bench()
    bench.plan(plan("n1", planned=[]))
    bench.state.observe_plan("n1", None)
    bench.clock.now += 86400
    bench.state.tick()
    assert bench.state.plan_gone_for("n1") == float("inf")


def test_an_agent_falls_silent_at_the_very_moment_that_was_announced() -> None:
    """A moment at which start + silence and now - start round differently."""
    beats = Heartbeats(silent_seconds=60.0)
    start = 524265.4602071769
    beats.observe("n1", "t", start)
    end = beats.holds_until("n1", start)
    assert not beats.alive("n1", end, known_silent=False)


def test_ages_of_what_is_gone() -> None:
    bench = Bench()
    settled(bench)
    assert bench.state.plan_gone_for("n1") == float("inf")
    bench.state.observe_node("n1", None)
    bench.state.tick()
    bench.clock.now += 40
    bench.state.tick()
    assert bench.state.node_gone_for("n1") == 40
    bench.state.observe_plan("n1", None)
    bench.clock.now += 7
    assert bench.state.plan_gone_for("n1") == 7
    bench.node(node())
    bench.state.tick()
    assert bench.state.node_gone_for("n1") == 0
