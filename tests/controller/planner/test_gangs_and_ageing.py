"""Gangs whole or not at all, pods that waited too long, and names that a DeviceClass maps."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.instances import MIXES, instance
from controller.explanation import explain
from controller.model.reasons import UnplacedReason
from controller.model.results import PlanningResult
from controller.model.scheduling import LabelSelector, PodAffinityTerm, Requirement, SchedulingContext
from controller.model.snapshot import Snapshot
from controller.model.views import PodView
from controller.planning import plan
from tests.controller.planner.builders import cluster, holder, mig, pod, replaced, server
from tests.controller.planner.checker import check
from tests.drawn import examples


def gang(name: str, count: int, request: str, *, size: int = 0, **more: object) -> list[PodView]:
    return [pod(f"{name}-{number}", request, gang=name, gang_size=size, **more) for number in range(count)]  # type: ignore[arg-type]  # passed on by name


def placed(result: PlanningResult) -> set[str]:
    return {one.key[1] for one in result.placed}


def reasons(result: PlanningResult) -> dict[str, UnplacedReason]:
    return {one.key[1]: one.reason for one in result.unplaced}


def test_a_gang_that_fits_is_placed_across_nodes() -> None:
    nodes = [server(name, mig()) for name in ("node-1", "node-2")]
    result = plan(cluster(*nodes, pending=gang("train", 4, "3g.20gb")))

    assert len(result.placed) == 4


def test_a_gang_that_does_not_fit_leaves_its_room_to_others() -> None:
    pending = [*gang("train", 2, "3g.20gb"), pod("single", "3g.20gb", created=9)]
    node = server("node-1", mig(used=[("3g.20gb", 4)]))
    result = plan(cluster(node, pods=[holder("node-1", "3g.20gb")], pending=pending))

    assert placed(result) == {"single"}
    assert reasons(result) == dict.fromkeys(("train-0", "train-1"), UnplacedReason.GANG_WAITS)
    assert "Pod group train needs places for 2 pods at once; only 0 can be provided." in result.unplaced[0].message


def test_a_gang_of_one_waits_as_any_pod_does() -> None:
    full = server("node-1", mig(used=[("7g.40gb", 0)]))
    alone, one = (pod("p", "7g.40gb", gang=gang, gang_size=len(gang) and 1) for gang in ("", "train"))
    found = [plan(cluster(full, pods=[holder("node-1", "7g.40gb")], pending=[each])) for each in (alone, one)]

    assert reasons(found[1]) == reasons(found[0]) == {"p": UnplacedReason.WAITS_FOR_RELEASE}
    assert found[1].unplaced[0].message == found[0].unplaced[0].message


def test_a_gang_of_one_of_which_another_pod_has_the_place_waits_as_any_pod_does() -> None:
    first = pod("first", "7g.40gb", priority=1)
    found = [
        plan(
            cluster(server("node-1", mig()), pending=[first, pod("p", "7g.40gb", gang=gang, gang_size=len(gang) and 1)])
        )
        for gang in ("", "train")
    ]

    assert reasons(found[1]) == reasons(found[0]) == {"p": UnplacedReason.NO_CAPACITY}
    assert found[1].unplaced[0].message == found[0].unplaced[0].message


@pytest.mark.parametrize("labels", [(), (("app", "web"),)])
def test_what_a_gang_leaves_goes_also_to_a_pod_whose_place_others_decide(labels: tuple[tuple[str, str], ...]) -> None:
    """Its pods are cheaper, and have the GPU first. Only a pod with the label keeps away from the other node."""
    apart = PodAffinityTerm(
        topology_key="kubernetes.io/hostname",
        selector=LabelSelector(requirements=(Requirement(key="app", operator="In", values=("web",)),)),
        namespaces=("team",),
    )
    single = replaced(pod("single", "7g.40gb", created=9, labels=labels), anti_affinity=(apart,) if labels else ())
    nodes = [
        server("node-1", mig(), labels={"kubernetes.io/hostname": "node-1"}),
        server("node-2", mig(used=[("7g.40gb", 0)]), labels={"kubernetes.io/hostname": "node-2"}),
    ]
    held = replaced(holder("node-2", "7g.40gb"), labels=(("app", "web"),))
    result = plan(cluster(*nodes, pods=[held], pending=[*gang("train", 2, "4g.20gb"), single]))

    assert placed(result) == {"single"}


@pytest.mark.parametrize(
    ("count", "request_", "enabled", "zones", "room"),
    [
        (3, "3g.20gb", True, False, 2),
        (9, "1g.5gb", True, False, 7),
        (6, "2g.10gb", True, False, 3),
        (3, "3g.20gb", False, False, None),  # with a second node, once it is labelled
        (4, "3g.20gb", True, True, 2),
    ],
)
def test_a_gang_that_is_too_large_for_empty_gpus_does_not_read_that_it_should_wait(
    count: int, request_: str, enabled: bool, zones: bool, room: int | None
) -> None:
    nodes = [server("node-1", mig(), labels={"zone": "a"})]
    nodes += [server("node-2", mig(), labels={"zone": "b"})] if zones else []
    nodes += [] if enabled else [server("node-2", mig(), partitioning=None)]
    near = PodAffinityTerm(topology_key="zone", selector=LabelSelector(requirements=()), namespaces=("team",))
    affinity = (near,) if zones else ()
    pending = [replaced(one, affinity=affinity) for one in gang("train", count, request_)]
    found = plan(cluster(*nodes, pending=pending)).unplaced

    assert {one.reason for one in found} == {UnplacedReason.GANG_WAITS}
    words = "Wait for running pods" if room is None else f"have room for {room} even when they are empty"
    assert all(words in one.message for one in found)


def test_which_gangs_are_too_large_is_asked_while_there_is_work_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "LOOKS", 5)
    pending = [one for name in ("one", "two", "three", "four") for one in gang(name, 3, "3g.20gb")]
    found = plan(cluster(server("node-1", mig()), pending=pending)).unplaced

    said = {one.uid.split("-")[1]: "even when they are empty" in one.message for one in found}
    assert len(said) == 4
    assert set(said.values()) == {True, False}


def test_of_two_gangs_one_is_served_whole() -> None:
    pending = [*gang("one", 2, "3g.20gb"), *gang("two", 2, "3g.20gb")]
    result = plan(cluster(server("node-1", mig()), pending=pending))

    assert placed(result) == {"one-0", "one-1"}


def test_members_beyond_the_least_number_are_placed_but_not_needed() -> None:
    result = plan(cluster(server("node-1", mig()), pending=gang("train", 3, "3g.20gb", size=2)))

    assert len(result.placed) == 2


def test_running_pods_of_the_gang_count() -> None:
    running = replaced(holder("node-1", "3g.20gb", name="train-9"), gang="train", gang_size=2)
    node = server("node-1", mig(used=[("3g.20gb", 0)], holder="team/train-9"))
    result = plan(cluster(node, pods=[running], pending=gang("train", 1, "3g.20gb", size=2)))

    assert placed(result) == {"train-0"}


def test_a_replaced_member_of_a_gang_that_runs_is_placed_alone() -> None:
    """Two of four have succeeded and are gone; one runs."""
    running = replaced(holder("node-1", "1g.5gb", name="train-2"), gang="train", gang_size=4)
    node = server("node-1", mig(used=[("1g.5gb", 0)], holder="team/train-2"))
    result = plan(cluster(node, pods=[running], pending=gang("train", 1, "1g.5gb", size=4)))

    assert placed(result) == {"train-0"}


@pytest.mark.parametrize("more", [{"deleting": True}, {"gpu": ()}], ids=["terminating", "without partitions"])
def test_such_a_member_does_not_mean_that_the_gang_has_started(more: dict[str, object]) -> None:
    bound = replaced(holder("node-1", "1g.5gb", name="train-2"), gang="train", gang_size=4, **more)
    node = server("node-1", mig(used=[("1g.5gb", 0)], holder="team/train-2"))
    result = plan(cluster(node, pods=[bound], pending=gang("train", 2, "1g.5gb", size=4)))

    assert not result.placed
    assert reasons(result)["train-0"] is UnplacedReason.GANG_WAITS


def test_a_gang_that_is_created_again_is_not_started_in_part_while_its_old_pods_end() -> None:
    ending = [
        replaced(holder("node-1", "7g.40gb", name=f"old-{number}"), gang="train", gang_size=2, deleting=True)
        for number in range(2)
    ]
    gpus = [mig(number, used=[("7g.40gb", 0)], holder=f"team/old-{number}") for number in range(2)]
    again = gang("train", 2, "7g.40gb", size=2)
    result = plan(cluster(server("node-1", *gpus, mig(2)), pods=ending, pending=again))

    assert not result.placed
    assert set(reasons(result).values()) == {UnplacedReason.GANG_WAITS}


@pytest.mark.parametrize(("present", "expected"), [(1, {"train-0"}), (3, set())], ids=["too few", "all created again"])
def test_a_gang_of_which_a_member_has_finished_may_be_completed(present: int, expected: set[str]) -> None:
    """Created again as a whole it starts as a whole, and there is no room for three."""
    snapshot = cluster(server("node-1", mig()), pending=gang("train", present, "3g.20gb", size=3))
    result = plan(replace(snapshot, finished_gangs=frozenset({("team", "train")})))

    assert placed(result) == expected


@pytest.mark.parametrize("missing", ["not created", "gated"])
def test_a_gang_that_lacks_pods_waits(missing: str) -> None:
    pending = gang("train", 2, "1g.5gb", size=3)
    if missing == "gated":
        pending += [pod("train-9", "1g.5gb", gang="train", gang_size=3, scheduling_gates=("example.com/gate",))]
    result = plan(cluster(server("node-1", mig()), pending=pending))

    assert not result.placed
    assert reasons(result)["train-0"] is UnplacedReason.GANG_WAITS
    assert "has 2 of the 3 pods that it needs" in result.unplaced[-1].message


def test_pods_held_back_until_all_can_start_are_planned_with_the_one_that_was_tried() -> None:
    pending = [pod("train-0", "3g.20gb", gang="train"), pod("train-1", "3g.20gb", gang="train", unschedulable=False)]
    result = plan(cluster(server("node-1", mig()), pending=pending))

    assert len(result.placed) == 2


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 10_000), mix=st.sampled_from(sorted(MIXES)), size=st.integers(2, 5))
def test_no_gang_is_placed_in_part(seed: int, mix: str, size: int) -> None:
    snapshot = instance(nodes=3, gpus=2, pods=30, seed=seed, mix=MIXES[mix])
    pending = tuple(
        replace(one, gang=f"gang-{number // size}" if number % 3 else "") for number, one in enumerate(snapshot.pending)
    )
    snapshot = replace(snapshot, pending=pending)
    result = plan(snapshot)

    check(snapshot, result)
    served = {one.uid for one in result.placed}
    for name in {one.gang for one in pending if one.gang}:
        members = {one.uid for one in pending if one.gang == name}
        assert members <= served or not members & served


def test_of_more_gangs_than_fit_the_cheapest_are_served_whole() -> None:
    """Their pods are unlike. If each counted by itself, the cheap ones of every gang would come first: 186 placed."""
    found = 0
    for seed in range(5):
        snapshot = instance(nodes=2, gpus=8, pods=60, seed=seed, mix=MIXES["plain"])
        pending = [
            replace(one, namespace="team", gang=f"gang-{number // 3}", gang_size=3)
            for number, one in enumerate(snapshot.pending)
        ]
        found += len(plan(replace(snapshot, pending=tuple(pending))).placed)

    assert found >= 210


def starving(*, aged: bool, rival_priority: int = 0) -> Snapshot:
    """One large pod against many small ones."""
    small = [pod(f"small{number}", "1g.5gb", priority=rival_priority) for number in range(7)]
    snapshot = cluster(server("node-1", mig()), pending=[pod("large", "7g.40gb"), *small])
    return replace(snapshot, aged=frozenset({"uid-large"}) if aged else frozenset())


def test_a_pod_that_waited_long_counts_as_the_next_level() -> None:
    assert "large" not in placed(plan(starving(aged=False)))
    assert placed(plan(starving(aged=True))) == {"large"}


def test_ageing_does_not_outrank_the_next_level() -> None:
    assert "large" not in placed(plan(starving(aged=True, rival_priority=10)))


def test_a_pod_that_was_not_bound_twice_leaves_its_partitions_to_others() -> None:
    node = server("node-1", mig(idle=[("7g.40gb", 0)]))
    snapshot = cluster(node, pending=[pod("first", "7g.40gb"), pod("second", "7g.40gb", created=1)])
    result = plan(replace(snapshot, bind_failures={"uid-first": "node-1"}))

    assert placed(result) == {"second"}
    assert reasons(result) == {"first": UnplacedReason.FILTERED_BY_SCHEDULER}


def test_a_partition_whose_name_a_device_class_maps_is_planned_like_any_other() -> None:
    snapshot = cluster(server("node-1", mig()), pending=[pod("mine", "1g.5gb"), pod("mapped", "3g.20gb")])
    context = SchedulingContext(dra_resources=frozenset({"nvidia.com/mig-3g.20gb"}))

    assert placed(plan(replace(snapshot, context=context))) == {"mine", "mapped"}
