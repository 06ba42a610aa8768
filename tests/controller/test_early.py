"""A pass before the window is over: kept where it costs no pod anything, and cheap where it is not."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.instances import MIXES, instance
from controller.cache.batcher import ALONE_SECONDS
from controller.cache.informers import FixedInformers
from controller.early import MOST_WAITING, costs_no_pod, early_result
from controller.model.results import Counts, CutShort, Placed, PlanningResult, Supply
from controller.model.snapshot import Snapshot
from controller.model.views import MigDesired, PodView
from controller.planning import plan
from tests.builders.objects import item, node
from tests.builders.objects import pod as raw_pod
from tests.controller.loop_rig import LoopRig, everything_on_n1
from tests.controller.planner.builders import cluster, mig, pod, server
from tests.controller.planner.drain_scenes import LARGE, SMALL, drained, following, one_each, planned, scene, where
from tests.drawn import examples

NEW, OTHER = pod("new", "1g.5gb"), pod("other", "1g.5gb")
WAITING, FITS_NOW = pod("waiting", "7g.40gb"), pod("fits-now", "1g.5gb")
MANY = tuple(pod(f"many-{number}", "7g.40gb") for number in range(MOST_WAITING + 1))
UNTRIED = replace(pod("untried", "1g.5gb"), unschedulable=False)
RESERVED = {OTHER.uid: "node-1"}


def pending(*pods: PodView, reservations: dict[str, str] | None = None) -> Snapshot:
    return replace(cluster(pending=pods), reservations=reservations or {})


class Planned:
    """A planner that places all but these, and counts how often it is called."""

    def __init__(self, *unplaced: PodView) -> None:
        self.unplaced = {one.uid for one in unplaced}
        self.passes: list[list[str]] = []

    def __call__(self, snapshot: Snapshot) -> PlanningResult:
        self.passes.append([one.name for one in snapshot.pending])
        return result(*(one for one in snapshot.pending if one.uid not in self.unplaced))


@pytest.mark.parametrize(
    ("snapshot", "news", "kept", "passes"),
    [
        (pending(NEW), True, True, 1),
        (pending(NEW, OTHER, reservations=RESERVED), True, True, 1),
        (pending(NEW, UNTRIED), True, True, 1),
        (pending(NEW, WAITING), False, True, 1),
        (pending(NEW, WAITING), True, True, 2),
        (pending(NEW, FITS_NOW), True, False, 1),
        (pending(NEW, *MANY), True, False, 0),
        (pending(NEW, *MANY), False, True, 1),
        (pending(replace(NEW, gang="g", gang_size=2)), False, False, 0),
        (pending(), False, True, 1),
    ],
    ids=[
        "alone",
        "alongside one that has a place",
        "alongside one that its scheduler has not tried",
        "nothing has changed for the one that waits",
        "there is still nothing for the one that waits",
        "the one that waits has its place now",
        "many wait, and there is news",
        "many wait, without news",
        "of a gang",
        "it is gone",
    ],
)
def test_takes_nothing_that_one_that_waits_could_get(
    snapshot: Snapshot, *, news: bool, kept: bool, passes: int
) -> None:
    planner = Planned(WAITING, *MANY)
    found = early_result(snapshot, {NEW.uid}, planner, news=news)
    assert (found is not None, len(planner.passes)) == (kept, passes)


def result(*placed: PodView, destroyed: int = 0, cut_short: CutShort | None = None) -> PlanningResult:
    found = tuple(Placed(uid=one.uid, key=one.key, node="node-1", supply=Supply.NEW) for one in placed)
    return PlanningResult(placed=found, counts=Counts(partitions_destroyed=destroyed), cut_short=cut_short)


@pytest.mark.parametrize(
    ("made", "kept"),
    [
        (result(NEW, OTHER), True),
        (result(NEW), False),
        (result(OTHER), False),
        (result(NEW, OTHER, destroyed=1), False),
        (result(NEW, OTHER, cut_short=CutShort.WORK), False),
    ],
    ids=["all placed", "another loses its place", "a new one has none", "destroys", "was cut short"],
)
def test_is_kept_only_where_it_costs_no_pod(made: PlanningResult, *, kept: bool) -> None:
    snapshot = pending(NEW, OTHER, WAITING, reservations=RESERVED)
    assert costs_no_pod(snapshot, {NEW.uid, "gone"}, made) is kept


@settings(max_examples=examples(60))
@given(st.integers(1, 4), st.integers(1, 8), st.integers(0, 10_000), st.sampled_from(sorted(MIXES)))
def test_keeps_every_partition_that_is_there(nodes: int, pods: int, seed: int, mix: str) -> None:
    snapshot = instance(nodes=nodes, gpus=2, pods=pods, seed=seed, mix=MIXES[mix])
    found = plan(snapshot)
    if not costs_no_pod(snapshot, {one.uid for one in snapshot.pending}, found):
        return
    assert not found.unplaced
    views = {(view.name, gpu.index): gpu for view in snapshot.plans for gpu in view.gpus}
    for change in found.node_changes:
        for each in change.gpus:
            there = views[change.node, each.index].partitions
            if isinstance(each.desired, MigDesired):
                layout = {(one.profile, one.start) for one in each.desired.layout}
                assert {(part.profile, part.start) for part in there} <= layout


@pytest.mark.parametrize(("free", "kept"), [(("1g.5gb", 0), False), (("2g.10gb", 0), True)])
def test_what_was_released_goes_to_the_pod_that_waits_for_it(free: tuple[str, int], *, kept: bool) -> None:
    """The new pod fits the instance, or finds room elsewhere; the one that waits has a place only with the first."""
    waiting = replace(pod("waiting", "1g.5gb", created=1), node_selector=(("pool", "full"),))
    full = server("full", mig(used=[("4g.20gb", 4)], idle=[free]))
    node, view = full
    nodes = ((replace(node, labels={**node.labels, "pool": "full"}), replace(view, paused=True)), server("room", mig()))
    snapshot = cluster(*nodes, pending=[waiting, replace(NEW, created=9)])
    assert (early_result(snapshot, {NEW.uid}, plan, news=True) is not None) is kept


@pytest.mark.parametrize("news", [True, False])
@pytest.mark.parametrize(("holders", "kept"), [((1, 6), True), ((1, 7), False)])
def test_a_drain_goes_on_alongside_a_pod_that_comes(holders: tuple[int, int], *, news: bool, kept: bool) -> None:
    """It is planned at once where there is room elsewhere; it never gets a place on the GPU that is drained."""
    snapshot = scene(*one_each(*holders), pending=[LARGE])
    first = planned(snapshot, LARGE)
    waits = frozenset({LARGE.uid})
    snapshot = replace(following(snapshot, first), pending=(LARGE, SMALL), aged=waits, drained_for=waits)
    found = early_result(snapshot, {SMALL.uid}, plan, news=news)

    assert drained(first) == {"large": ("node-1", 0)}
    assert (found is not None) is kept
    if found is not None:
        assert found.drained == first.drained
        assert where(found) == {"small": "node-2"}
        assert [change.node for change in found.node_changes] == ["node-2"]


def test_an_idle_partition_in_the_way_makes_it_wait() -> None:
    """The planner would destroy it; within the window its own pod may come."""
    snapshot = cluster(server("node-1", mig(idle=[("4g.20gb", 0)])), pending=[WAITING])
    found = plan(snapshot)
    assert [one.uid for one in found.placed] == [WAITING.uid]
    assert not costs_no_pod(snapshot, {WAITING.uid}, found)


def quiet(rig: LoopRig) -> None:
    rig.bench.cluster.node(node("n1"))
    rig.settle()
    rig.answer = everything_on_n1(item(0, 3))


def names(rig: LoopRig) -> list[list[str]]:
    return [[one.name for one in snapshot.pending] for snapshot in rig.snapshots]


def test_a_pod_that_comes_alone_is_planned_at_once_and_the_next_ones_together(rig: LoopRig) -> None:
    quiet(rig)
    rig.bench.cluster.pod(raw_pod("a"))
    assert rig.turn() == ALONE_SECONDS
    assert rig.snapshots == []
    rig.turn(after=ALONE_SECONDS)
    assert names(rig) == [["a"]]
    assert rig.bench.cluster.get_plan()["spec"]["planned"]["gpus"] == [item(0, 3)]
    for name in ("b", "c"):
        rig.bench.cluster.pod(raw_pod(name))
        rig.turn(after=2)
    assert len(rig.snapshots) == 1
    rig.turn(after=10)
    assert names(rig)[1:] == [["a", "b", "c"]]


@pytest.mark.parametrize(("seconds", "passes"), [(4.75, 1), (5.0, 2)])
def test_within_five_seconds_of_a_pass_for_new_pods_the_window_holds(rig: LoopRig, seconds: float, passes: int) -> None:
    quiet(rig)
    for name in ("a", "b"):
        rig.bench.cluster.pod(raw_pod(name))
        rig.turn()
        rig.turn(after=ALONE_SECONDS)
        rig.bench.clock.now += seconds
    assert len(rig.snapshots) == passes


class Listing(FixedInformers):
    """As while a watch that a pod needs has just begun."""

    listing = True


def test_nothing_is_tried_before_what_the_pod_needs_is_listed(rig: LoopRig, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet(rig)
    monkeypatch.setattr(rig.bench.state.cluster, "informers", Listing())
    rig.bench.cluster.pod(raw_pod("a"))
    rig.turn()
    rig.turn(after=ALONE_SECONDS)
    assert rig.snapshots == []
    monkeypatch.setattr(rig.bench.state.cluster, "informers", FixedInformers())
    rig.turn()
    assert names(rig) == [["a"]]


def nothing_fits(_: Snapshot) -> PlanningResult:
    return PlanningResult()


def destroys(snapshot: Snapshot) -> PlanningResult:
    return replace(everything_on_n1(item(0, 3))(snapshot), counts=Counts(partitions_destroyed=1))


@pytest.mark.parametrize("answer", [nothing_fits, destroys])
def test_a_burst_costs_one_pass_more_at_most(rig: LoopRig, answer: Callable[[Snapshot], PlanningResult]) -> None:
    quiet(rig)
    rig.answer = answer
    for number in range(8):
        rig.bench.cluster.pod(raw_pod(f"p{number}"))
        rig.turn(after=0.0)
        rig.turn(after=0.3)
    assert len(rig.snapshots) == 1, "it is tried once"
    assert "planned" not in rig.bench.cluster.get_plan()["spec"], "what was thrown away is not written"
    assert rig.recorder.emitted == []
    assert not rig.idle()
    rig.turn(after=10)
    assert [len(found) for found in names(rig)] == [1, 8]
