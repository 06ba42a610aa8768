"""A pod that can never run, or that its scheduler refuses, costs no other pod its place."""

from dataclasses import replace

import pytest

from controller.model.results import PlanningResult
from controller.model.scheduling import (
    FILTERS,
    FilterProfile,
    HostPort,
    LabelSelector,
    PodAffinityTerm,
    Requirement,
    SchedulingContext,
    SpreadConstraint,
    Toleration,
)
from controller.model.snapshot import Snapshot
from controller.model.views import PlannerOptions, PodView
from controller.planner.search import search, take_off_broken
from controller.planning import plan
from tests.builders.models import H100
from tests.controller.planner.builders import cluster, holder, mig, pod, replaced, server
from tests.controller.planner.test_constrained_placement import HOST, WEB, ZONE, near, web

NIC = "example.com/nic"
FULL = [("1g.5gb", start) for start in range(7)]


def placed(result: PlanningResult) -> set[str]:
    return {one.key[1] for one in result.placed}


def test_a_pod_is_tried_on_a_node_that_refused_another_of_its_app_for_its_own_selector() -> None:
    """To `any` the pod on a2 counts, so that a1 would be one too many for zone a; to `fast` a2 does not count."""
    spread = (SpreadConstraint(topology_key=ZONE, selector=WEB),)
    servers = [
        server("a1", mig(), labels={HOST: "a1", ZONE: "a", "speed": "fast"}),
        server("a2", mig(used=FULL), labels={HOST: "a2", ZONE: "a"}),
        server("b1", mig(used=FULL), labels={HOST: "b1", ZONE: "b", "speed": "fast"}),
    ]
    running = replaced(pod("e", node_name="a2"), labels=(("app", "web"),))
    full = [holder(name, ("1g.5gb", 7), name=name) for name in ("a2", "b1")]
    of_any = web("a-any", spread=spread)
    fast = web("b-fast", spread=spread, node_selector=(("speed", "fast"),))
    snapshot = cluster(*servers, pods=[running, *full], pending=[of_any, fast])

    assert placed(plan(snapshot)) == {"b-fast"}


def test_a_pod_is_tried_on_a_node_that_refused_another_of_its_app_which_tolerates_more() -> None:
    """A tainted node does not count for a pod that tolerates nothing: to `any` zone a has one, to `none` it has not."""
    spread = (SpreadConstraint(topology_key=ZONE, selector=WEB, honors_taints=True),)
    servers = [
        server("a1", mig(), labels={HOST: "a1", ZONE: "a"}),
        server("a2", mig(used=FULL), labels={HOST: "a2", ZONE: "a"}, taints=("special",)),
        server("b1", mig(used=FULL), labels={HOST: "b1", ZONE: "b"}),
    ]
    running = replaced(pod("e", node_name="a2"), labels=(("app", "web"),))
    full = [holder(name, ("1g.5gb", 7), name=name) for name in ("a2", "b1")]
    of_any = web("a-any", spread=spread, tolerations=(Toleration(operator="Exists"),))
    none = web("b-none", spread=spread)
    snapshot = cluster(*servers, pods=[running, *full], pending=[of_any, none])

    assert placed(plan(snapshot)) == {"b-none"}


def test_pods_that_their_affinity_keeps_off_every_node_take_no_place_while_a_gang_waits() -> None:
    refused = [replaced(pod(f"never-{n}", "1g.5gb", priority=100), affinity=near(ZONE)) for n in range(7)]
    ordinary = [pod(f"plain-{n}", "1g.5gb") for n in range(7)]
    gang = [pod(f"gang-{n}", "7g.40gb", gang="train", gang_size=2) for n in range(2)]
    snapshot = cluster(server("node-1", mig(), labels={ZONE: "a"}), pending=[*refused, *ordinary, *gang])

    assert placed(plan(snapshot)) == {one.name for one in ordinary}


@pytest.mark.parametrize("why", ["its port is taken", "no node has its device"])
def test_a_pod_for_which_no_node_has_room_is_admitted_nowhere(why: str) -> None:
    """GPUs have space for it; some other pod would be turned away for that."""
    port = (HostPort(port=9100),)
    daemons = [replaced(pod(f"on-{name}", node_name=name), host_ports=port) for name in ("n1", "n2")]
    servers = [server("n1", mig(0, gpu_model=H100), mig(1, gpu_model=H100)), server("n2", mig(0), mig(1))]
    never = pod("never", "7g.80gb") if why == "its port is taken" else pod("never", "7g.80gb", (NIC, 1))
    large = [pod(f"p{number}", "7g.80gb", cpu=cpu) for number, cpu in enumerate((20_000, 500, 500, 20_000))]
    ordinary = [pod("a-small", "1g.10gb", cpu=500), *large]

    def served(*more: PodView) -> set[str]:
        snapshot = cluster(*servers, pods=daemons, pending=[*ordinary, *more])
        return placed(plan(replace(snapshot, aged=frozenset({"uid-a-small", "uid-never"}))))

    assert served(replaced(never, host_ports=port) if why == "its port is taken" else never) == served()


def labelled(name: str, app: str, *, near_app: str = "", gang: str = "") -> PodView:
    """A pod that must be in the zone of pods of another app."""
    selector = LabelSelector(requirements=(Requirement(key="app", operator="In", values=(near_app,)),))
    terms = (PodAffinityTerm(topology_key=ZONE, selector=selector, namespaces=("team",)),) if near_app else ()
    one = pod(name, "1g.5gb", gang=gang, gang_size=2 if gang else 0)
    return replaced(one, labels=(("app", app),), affinity=terms)


@pytest.mark.parametrize("first", ["a", "b", "c", "d"])
def test_pods_that_relied_on_one_that_verification_takes_off_are_taken_off_as_well(first: str) -> None:
    """d needs c, c needs b, b needs a, and a has moved to another zone since they were placed."""
    pending = [labelled("a", "a"), *(labelled(name, name, near_app=chr(ord(name) - 1)) for name in "bcd")]
    pending.sort(key=lambda one: one.name < first)
    servers = [server(f"n-{zone}", mig(), labels={HOST: f"n-{zone}", ZONE: zone}) for zone in "xy"]
    found = search(cluster(*servers, pending=pending), PlannerOptions())
    (leader,) = [one for one in found.assignments if one.pod.name == "a"]
    assert all(one.placed for one in found.assignments)
    elsewhere = 1 - leader.node
    found.board.take_off(leader)
    assert found.board.place_on(leader, elsewhere)

    assert found.constrained.verify()
    assert [one.pod.name for one in found.assignments if one.placed] == ["a"]


def test_pods_that_relied_on_a_gang_which_lost_a_member_are_taken_off_as_well() -> None:
    """One member needs what left; without it the gang does not start, and the follower of the other has no leader."""
    pending = [
        labelled("lead", "lead"),
        labelled("gang-0", "gang", gang="train", near_app="lead"),
        labelled("gang-1", "mate", gang="train"),
        labelled("follower", "follower", near_app="mate"),
    ]
    servers = [server(f"n-{zone}", mig(), labels={HOST: f"n-{zone}", ZONE: zone}) for zone in "xy"]
    snapshot = cluster(*servers, pending=pending)
    found = search(snapshot, PlannerOptions())
    assert all(one.placed for one in found.assignments)
    (leader,) = [one for one in found.assignments if one.pod.name == "lead"]
    elsewhere = 1 - leader.node
    found.board.take_off(leader)
    assert found.board.place_on(leader, elsewhere)

    take_off_broken(found.board, found.constrained, found.gangs, found.assignments)
    assert [one.pod.name for one in found.assignments if one.placed] == ["lead"]


def test_a_pod_keeps_its_place_next_to_one_of_a_lower_level_while_another_waits_in_vain() -> None:
    selector = LabelSelector(requirements=(Requirement(key="app", operator="In", values=("a",)),))
    near = PodAffinityTerm(topology_key=ZONE, selector=selector, namespaces=("team",), namespace_selector=None)
    label = (("app", "a"),)
    first = replaced(pod("first", "2g.10gb", priority=9, created=1), labels=label)
    kept = replaced(pod("kept", "7g.40gb", priority=9, created=2), labels=label, affinity=(near,))
    waits = pod("waits", "7g.40gb", priority=9, created=3, selector={ZONE: "z0"})
    low = replaced(pod("low", "1g.5gb", created=4), labels=label)
    servers = [
        server("n0", mig(0, idle=[("2g.10gb", 0)]), labels={ZONE: "z0"}),
        server("n1", mig(0, idle=[("7g.40gb", 0)]), mig(1, idle=[("1g.5gb", 0)]), labels={ZONE: "z1"}),
    ]
    reserved = {"uid-first": "n0", "uid-kept": "n1", "uid-low": "n1"}
    result = plan(replace(cluster(*servers, pending=[first, kept, waits, low]), reservations=reserved))

    assert {one.uid: one.node for one in result.placed} == reserved
    assert result.node_changes == ()


@pytest.mark.parametrize("zones", [("a", "b", "b"), ("b", "b", "a"), ("b", "a", "b")])
def test_a_gang_that_must_stay_in_one_zone_is_placed_in_the_zone_that_has_room(zones: tuple[str, ...]) -> None:
    servers = [
        server(f"n{number}", mig(), labels={HOST: f"n{number}", ZONE: zone}) for number, zone in enumerate(zones)
    ]
    members = [
        replaced(pod(f"w{number}", "7g.40gb", gang="train", gang_size=2), labels=(("app", "web"),), affinity=near(ZONE))
        for number in range(2)
    ]
    result = plan(cluster(*servers, pending=members))

    by_name = {f"n{number}": zone for number, zone in enumerate(zones)}
    assert [by_name[one.node] for one in result.placed] == ["b", "b"]


def aged(snapshot: Snapshot, *names: str) -> Snapshot:
    return replace(snapshot, aged=frozenset(f"uid-{name}" for name in names))


def test_no_gpu_is_reserved_on_a_node_that_lacks_another_resource_of_the_aged_pod() -> None:
    never = replaced(pod("never", "7g.40gb"), requests=(("cpu", 1000), (NIC, 1), ("nvidia.com/mig-7g.40gb", 1)))
    young = [pod(f"young-{n}", "1g.5gb", created=5) for n in range(7)]
    snapshot = aged(cluster(server("node-1", mig()), pending=[never, *young]), "never")

    assert placed(plan(snapshot)) == {one.name for one in young}


def test_no_gpu_is_reserved_where_pods_that_hold_none_of_it_leave_too_little_cpu() -> None:
    never = pod("never", "7g.40gb", cpu=100_000)
    daemon = pod("daemon", node_name="node-1", cpu=32_000)
    young = [pod(f"young-{n}", "1g.5gb", created=5) for n in range(7)]
    snapshot = aged(
        cluster(server("node-1", mig(), mig(1), cpu=128_000), pods=[daemon], pending=[never, *young]), "never"
    )

    assert placed(plan(snapshot)) == {one.name for one in young}


def test_the_next_aged_pod_has_its_turn_where_the_oldest_can_never_run() -> None:
    never = replaced(pod("never", "7g.40gb"), requests=(("cpu", 1000), (NIC, 1), ("nvidia.com/mig-7g.40gb", 1)))
    honest = pod("honest", "7g.40gb", created=1)
    busy = server("node-1", mig(used=[("1g.5gb", 0)], holder="team/holder"))
    later = replaced(holder("node-1", "1g.5gb"), created=5)
    snapshot = waiting(cluster(busy, pods=[later], pending=[never, honest]), "never", "honest")

    assert [one.key[1] for one in plan(snapshot).drained] == ["honest"]


def test_what_the_holders_of_the_gpu_release_counts_for_the_drain() -> None:
    """The node has no CPU left, and all of it is held by the pod that holds the GPU."""
    large = pod("large", "7g.40gb", cpu=120_000)
    small = pod("holder", "1g.5gb", node_name="node-1", cpu=120_000, created=5)
    busy = server("node-1", mig(used=[("1g.5gb", 0)], holder="team/holder"), cpu=128_000)
    snapshot = waiting(cluster(busy, pods=[small], pending=[large]), "large")

    assert [one.key[1] for one in plan(snapshot).drained] == ["large"]


def waiting(snapshot: Snapshot, *names: str) -> Snapshot:
    """These have waited so long that a GPU is drained for the oldest."""
    return replace(snapshot, drained_for=frozenset(f"uid-{name}" for name in names))


def with_nic(name: str = "p") -> PodView:
    return replaced(pod(name, "1g.5gb"), requests=(("cpu", 1000), (NIC, 1), ("nvidia.com/mig-1g.5gb", 1)))


def options(**fields: object) -> PlannerOptions:
    profile = FilterProfile(**fields)  # type: ignore[arg-type]
    return PlannerOptions(profiles={profile.scheduler_name: profile})


@pytest.mark.parametrize(
    ("context", "rules"),
    [
        (SchedulingContext(dra_resources=frozenset({NIC})), PlannerOptions()),
        (SchedulingContext(), options(ignored_resources=frozenset({NIC}))),
        (SchedulingContext(), options(ignored_groups=frozenset({"example.com"}))),
        (SchedulingContext(), options(filters=tuple(name for name in FILTERS if name != "NodeResourcesFit"))),
    ],
    ids=["served by DRA", "ignored resource", "ignored group", "no NodeResourcesFit"],
)
def test_a_resource_that_the_scheduler_does_not_compare_keeps_no_pod_off(
    context: SchedulingContext, rules: PlannerOptions
) -> None:
    snapshot = replace(cluster(server("node-1", mig()), pending=[with_nic()]), context=context)

    assert placed(plan(snapshot, rules)) == {"p"}


def test_a_resource_that_a_device_plugin_serves_on_the_node_is_compared_even_if_dra_serves_it_elsewhere() -> None:
    taken = replaced(pod("q", node_name="node-1"), requests=(("cpu", 1000), (NIC, 1)))
    servers = server("node-1", mig(), allocatable={NIC: 1})
    snapshot = cluster(servers, pods=[taken], pending=[with_nic()])

    assert placed(plan(replace(snapshot, context=SchedulingContext(dra_resources=frozenset({NIC}))))) == set()


def test_host_ports_are_compared_by_profiles_with_the_filter_only() -> None:
    port = HostPort(port=8080)
    there = replaced(pod("q", node_name="node-1"), host_ports=(port,))
    wants = replaced(pod("p", "1g.5gb"), host_ports=(port,))
    snapshot = cluster(server("node-1", mig()), pods=[there], pending=[wants])

    assert placed(plan(snapshot)) == set()
    assert placed(plan(snapshot, options(filters=tuple(name for name in FILTERS if name != "NodePorts")))) == {"p"}


def in_group(count: int, least: int | None) -> PlanningResult:
    """`count` pods of a native PodGroup on a GPU that has room for seven."""
    pending = [pod(f"p{number}", "1g.5gb", gang="train", gang_api="scheduling.k8s.io") for number in range(count)]
    groups = {} if least is None else {("scheduling.k8s.io", "team", "train"): least}
    snapshot = replace(cluster(server("node-1", mig()), pending=pending), context=SchedulingContext(pod_groups=groups))
    return plan(snapshot)


@pytest.mark.parametrize(
    ("count", "least", "expected"),
    [(8, None, 0), (8, 4, 7), (8, 8, 0), (3, 4, 0), (8, 0, 7), (1, 0, 1)],
    ids=["unknown", "least fits", "all needed", "too few exist", "basic", "basic alone"],
)
def test_a_gang_needs_as_many_pods_as_its_pod_group_says(count: int, least: int | None, expected: int) -> None:
    assert len(in_group(count, least).placed) == expected
