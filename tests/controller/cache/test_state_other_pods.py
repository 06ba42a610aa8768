"""When a change of some other pod, or of a node without GPUs, is worth a pass for a pod that waits."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from controller.cache.state import RESYNC_SECONDS
from tests.builders.objects import Json, pod
from tests.controller.cache.state_bench import StateBench, settled

ZONE = "topology.kubernetes.io/zone"
SELECTOR = {"matchLabels": {"app": "db"}}
TERM = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ZONE, "labelSelector": SELECTOR}]}
SPREAD = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": SELECTOR}

PLAIN: Json = {}
NEAR: Json = {"affinity": {"podAffinity": TERM}}
AWAY: Json = {"affinity": {"podAntiAffinity": TERM}}
EVEN: Json = {"topologySpreadConstraints": [SPREAD]}
CONSTRAINED = [NEAR, AWAY, EVEN]


def other(node: str = "", *, cpu: str = "4", labels: dict[str, str] | None = None, **more: Any) -> Json:
    """A pod without GPUs."""
    raw = pod("other", requests={"cpu": cpu}, node=node, unschedulable=False, **more)
    raw["metadata"]["labels"] = labels if labels is not None else {"app": "db"}
    return raw


def without_gpus(**labels: str) -> Json:
    return {"metadata": {"name": "cpu", "uid": "uid-cpu", "labels": labels}, "spec": {}, "status": {}}


def waiting(constraints: Json, *observed: Json) -> StateBench:
    """n1 with GPUs, `cpu` without, one pod that waits, and these pods as they were before."""
    bench = StateBench()
    settled(bench)
    bench.node(without_gpus())
    bench.pod(pod("waits", **constraints))
    for raw in observed:
        bench.pod(raw)
    bench.triggers()
    return bench


def terminating(raw: Json) -> Json:
    raw = copy.deepcopy(raw)
    raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return raw


Build = Callable[[str], Json]
CHANGES: dict[str, tuple[Build, Build]] = {
    "bound": (lambda _: other(), other),
    "preempting": (lambda _: other(), lambda where: other(nominated=where)),
    "resized": (other, lambda where: other(where, cpu="1")),
    "relabelled": (other, lambda where: other(where, labels={})),
    "terminating": (other, lambda where: terminating(other(where))),
}


@pytest.mark.parametrize("change", [change for change in CHANGES if change != "resized"])
@pytest.mark.parametrize("where", ["n1", "cpu"])
@pytest.mark.parametrize("constraints", CONSTRAINED, ids=["affinity", "anti-affinity", "spread"])
def test_a_pod_whose_constraints_count_others_is_planned_when_another_pod_changes(
    change: str, where: str, constraints: Json
) -> None:
    before, after = CHANGES[change]
    bench = waiting(constraints, before(where))
    bench.pod(after(where))
    assert bench.triggers() == (f"node {where}",)
    bench.pod(after(where))
    assert bench.triggers() == ()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("where", ["n1", "cpu"])
def test_one_that_does_not_is_planned_when_resources_of_its_nodes_change(change: str, where: str) -> None:
    before, after = CHANGES[change]
    bench = waiting(PLAIN, before(where))
    bench.pod(after(where))
    assert bench.triggers() == (("node n1",) if (change, where) == ("resized", "n1") else ())


def pod_ends(bench: StateBench) -> None:
    bench.gone("other")


def node_changes(bench: StateBench) -> None:
    bench.node(without_gpus(zone="b"))


def node_goes(bench: StateBench) -> None:
    bench.state.observe_node("cpu", None)


@pytest.mark.parametrize("change", [pod_ends, node_changes, node_goes])
@pytest.mark.parametrize("constraints", [PLAIN, *CONSTRAINED], ids=["none", "affinity", "anti-affinity", "spread"])
def test_nodes_without_gpus_matter_to_constraints_only(change: Callable[[StateBench], None], constraints: Json) -> None:
    bench = waiting(constraints, other("cpu"))
    change(bench)
    assert bench.triggers() == (() if constraints is PLAIN else ("node cpu",))


def test_the_end_of_a_pod_that_kept_others_away_from_its_zone_is_worth_a_pass() -> None:
    bench = waiting(PLAIN, other("cpu", affinity=AWAY["affinity"]))
    bench.gone("other")
    assert bench.triggers() == ("node cpu",)


@pytest.mark.parametrize(
    "after",
    [None, other(), other("cpu"), terminating(other(nominated="n1"))],
    ids=["gone", "given up", "bound", "ends"],
)
def test_a_place_that_a_scheduler_kept_by_preemption_comes_free(after: Json | None) -> None:
    bench = waiting(PLAIN, other(nominated="n1"))
    bench.gone("other") if after is None else bench.pod(after)
    assert bench.triggers() == ("node n1",)


def test_and_where_it_is_bound_to_that_place_nothing_is_free() -> None:
    bench = waiting(PLAIN, other(nominated="n1"))
    bench.pod(other("n1"))
    assert bench.triggers() == ()


@pytest.mark.parametrize("constraints", [PLAIN, *CONSTRAINED], ids=["none", "affinity", "anti-affinity", "spread"])
def test_only_pods_keep_the_window_open(constraints: Json) -> None:
    bench = waiting(constraints)
    bench.pod(pod("second"))
    for number in range(9):
        bench.clock.now += 1
        bench.pod(other("n1", cpu=str(10 + number)))
        bench.informers.changes.add(f"claims {number}")
        bench.state.tick()
    assert bench.window.due_in() == 1.0
    bench.pod(pod("third"))
    assert bench.window.due_in() == 10.0


def test_while_a_pod_waits_planning_is_never_long_ago() -> None:
    bench = waiting(PLAIN)

    def at(seconds: float) -> tuple[str, ...]:
        bench.clock.now = began + seconds
        bench.beat()
        bench.state.tick()
        return bench.triggers()

    bench.state.cluster.snapshot()
    began = bench.clock.now
    assert at(RESYNC_SECONDS - 1) == ()
    assert at(RESYNC_SECONDS) == ("resync",)
    bench.state.cluster.snapshot()
    assert at(2 * RESYNC_SECONDS - 1) == ()
    assert at(2 * RESYNC_SECONDS) == ("resync",)
    bench.gone("waits")
    assert at(4 * RESYNC_SECONDS) == ()


@pytest.mark.parametrize("taken", [other("n1"), other(nominated="n1")], ids=["bound", "preempting"])
@pytest.mark.parametrize("reserved", ["n1", "n2", ""])
def test_a_pod_that_may_have_taken_a_reserved_place_triggers_a_pass(taken: Json, reserved: str) -> None:
    bench = waiting(PLAIN, other())
    bench.state.reserve({"uid-waits": reserved} if reserved else {})
    bench.pod(taken)
    assert bench.triggers() == (("node n1",) if reserved == "n1" else ())


def test_the_reservation_of_a_deleted_pod_is_released() -> None:
    bench = waiting(PLAIN, pod("second"))
    bench.state.reserve({"uid-waits": "n1"})
    bench.pod(terminating(pod("waits")))
    assert bench.triggers() == ("node n1",)
    assert bench.state.cluster.reservations() == {}


@pytest.mark.parametrize(
    "after",
    [None, terminating(pod("waits")), pod("waits", node="cpu"), pod("waits", requests={"cpu": "1"})],
    ids=["gone", "terminating", "bound", "needs no GPU"],
)
@pytest.mark.parametrize("others", ["unplaced", "placed"])
def test_what_was_kept_for_a_pod_without_a_place_is_for_others_without_one(after: Json | None, others: str) -> None:
    """Such as the GPU that is reserved for the pod that has waited longest."""
    bench = waiting(PLAIN, pod("second"))
    bench.state.reserve({"uid-second": "n1"} if others == "placed" else {})
    bench.gone("waits") if after is None else bench.pod(after)
    assert bench.triggers() == (("pods without a place",) if others == "unplaced" else ())


def test_a_pod_that_no_pass_has_seen_leaves_nothing() -> None:
    bench = waiting(PLAIN)
    bench.state.reserve({})
    bench.pod(pod("second"))
    bench.gone("second")
    assert bench.triggers() == ()
