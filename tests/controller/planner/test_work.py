"""What a pass costs: alike pods are judged once however many nodes there are, and no request makes a pass endless."""

import sys
from collections import Counter
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from controller.model.scheduling import (
    HostPort,
    LabelSelector,
    NodeSelectorTerm,
    PodAffinityTerm,
    Requirement,
    SpreadConstraint,
)
from controller.model.snapshot import Snapshot
from controller.model.views import PlannerOptions, PodView
from controller.planner import improvement, strategy, tries
from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board
from controller.planner.board.nodes import NodeCapacity
from controller.planner.placement import hopeless, making_room, split
from controller.planner.placement.packing_check import PackingCheck
from controller.planner.placement.shares import GroupCapacity
from controller.planning import plan
from tests import counted
from tests.builders.models import H100
from tests.controller.planner.builders import cluster, holder, mig, mps, pod, replaced, server
from tests.drawn import cells, sparing, thorough

AWAY = PodAffinityTerm(
    topology_key="kubernetes.io/hostname",
    selector=LabelSelector(requirements=()),
    namespaces=("team",),
    namespace_selector=None,
)
WAITING: dict[str, dict[str, Any]] = {
    "no GPU has room": {},
    "no node is large enough": {"cpu": 10**9},
    "no node matches": {"selector": {"pool": "none"}},
    "others keep it away": {"anti_affinity": (AWAY,)},
    "it needs several GPUs": {"partitions": ("3g.20gb", 3)},
}


@pytest.fixture
def one_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """What more tries may take is bounded by itself, in test_tries."""
    monkeypatch.setattr(tries, "_WORK", 0)


def waiting(nodes: int, pods: int, **more: Any) -> Snapshot:
    """Alike pods, none of which has a place: each node's GPU is in use."""
    names = [f"node-{number:03}" for number in range(nodes)]
    servers = [server(name, mig(used=[("7g.40gb", 0)])) for name in names]
    held = [holder(name, "7g.40gb", name=f"on-{name}") for name in names]
    partitions, away = more.pop("partitions", "3g.20gb"), more.pop("anti_affinity", ())
    pending = [replaced(pod(f"pod-{number:03}", partitions, **more), anti_affinity=away) for number in range(pods)]
    return cluster(*servers, pods=held, pending=pending)


def calls(snapshot: Snapshot) -> int:
    """In one pass; what is remembered between passes does not count."""
    plan(snapshot)
    return counted.calls(lambda: plan(snapshot))


@pytest.mark.parametrize("aged", [False, True])
@pytest.mark.parametrize("why", WAITING)
def test_a_further_pod_that_waits_costs_the_same_on_any_number_of_nodes(why: str, aged: bool) -> None:
    costs = []
    for nodes in (4, 24):
        few, many = (waiting(nodes, pods, **WAITING[why]) for pods in (10, 30))
        uids = frozenset(one.uid for one in many.pending) if aged else frozenset()
        costs.append(calls(replace(many, aged=uids)) - calls(replace(few, aged=uids)))
    assert costs[1] <= 1.2 * costs[0]


@pytest.mark.parametrize("drained", [False, True])
def test_a_further_gang_and_a_further_pod_to_drain_for_cost_the_same_on_any_number_of_nodes(drained: bool) -> None:
    costs = []
    for nodes in (4, 24):
        few, many = (replace(waiting(nodes, 0), pending=in_threes(gangs)) for gangs in (8, 24))
        if drained:
            few, many = (waiting(nodes, pods, partitions="7g.40gb") for pods in (10, 30))
        uids = frozenset(one.uid for one in many.pending) if drained else frozenset()
        costs.append(calls(replace(many, drained_for=uids)) - calls(replace(few, drained_for=uids)))
    assert costs[1] <= 1.2 * costs[0]


def in_threes(gangs: int) -> tuple[PodView, ...]:
    names = [(f"gang-{number:02}", member) for number in range(gangs) for member in range(3)]
    return tuple(pod(f"{gang}-{member}", "3g.20gb", gang=gang, gang_size=3) for gang, member in names)


@pytest.mark.thorough
def test_pods_that_differ_in_scarce_storage_cost_a_node_no_more_the_more_nodes_there_are() -> None:
    """More of them come than fit, so that pods are exchanged: what a node costs may grow, but not with their number."""
    costs = [calls(storage(nodes)) / nodes for nodes in (12, 24)]
    assert costs[1] <= 1.6 * costs[0]


@pytest.mark.parametrize("rising", [(), *thorough((("hugepages-2Mi",),), (("cpu",),)), ("memory",)])
def test_pods_none_of_which_needs_more_of_everything_than_another_cost_little_more_than_alike_ones(
    rising: tuple[str, ...],
) -> None:
    """Where one has found no place, the next may: it needs less of the storage that all nodes lack."""
    unlike, alike = falling(12, 120, 1, rising), falling(12, 120, 0, rising)
    assert len(plan(unlike).placed) == len(plan(alike).placed)
    assert calls(unlike) <= 2.5 * calls(alike)


def falling(nodes: int, pods: int, step: int, rising: tuple[str, ...]) -> Snapshot:
    """Each node has storage for one of them: each needs less of it than the one before, and more of something."""
    servers = [server(f"node-{number:03}", *map(mig, range(8)), cpu=10**6) for number in range(nodes)]
    room = {"ephemeral-storage": 1_500, "hugepages-2Mi": 10**6}
    pending = []
    for number in range(pods):
        one = pod(f"pod-{number:03}", "1g.5gb")
        more = {"ephemeral-storage": 1_000 - step * number, **{name: 1_000 + step * number for name in rising}}
        pending.append(replace(one, requests=tuple(sorted({**dict(one.requests), **more}.items()))))
    nodes_with = [(replace(node, allocatable={**node.allocatable, **room}), view) for node, view in servers]
    return cluster(*nodes_with, pending=pending)


def storage(nodes: int) -> Snapshot:
    room = {"ephemeral-storage": 10**7}
    servers = [server(f"node-{number:03}", mig()) for number in range(nodes)]
    pending = [pod(f"pod-{number:03}", "1g.5gb") for number in range(8 * nodes)]
    return cluster(
        *((replace(node, allocatable={**node.allocatable, **room}), view) for node, view in servers),
        pending=[
            replace(one, requests=(*one.requests, ("ephemeral-storage", 10**6 * (1 + number % 9) + number)))
            for number, one in enumerate(pending)
        ],
    )


def test_a_pod_for_each_node_costs_the_same_on_any_number_of_nodes() -> None:
    costs = [calls(daemon_set(nodes)) / nodes for nodes in (10, 60)]
    assert costs[1] <= 1.2 * costs[0]


def test_a_further_app_that_spreads_over_zones_costs_the_same_on_any_number_of_nodes() -> None:
    costs = [calls(apps(nodes, 24)) - calls(apps(nodes, 8)) for nodes in (60, 240)]
    assert costs[1] <= 1.3 * costs[0]


def apps(nodes: int, number: int) -> Snapshot:
    """Of three pods each, with a label of their own, one in each zone."""
    servers = [
        server(f"node-{one:03}", mig(), labels={"zone": f"zone-{one % 3}", "kubernetes.io/hostname": f"node-{one:03}"})
        for one in range(nodes)
    ]
    pending = []
    for app in range(number):
        selector = LabelSelector(requirements=(Requirement(key="app", operator="In", values=(f"app-{app}",)),))
        spread = (SpreadConstraint(topology_key="zone", selector=selector),)
        pending += [
            replaced(pod(f"pod-{app:03}-{one}", "1g.5gb"), labels=(("app", f"app-{app}"),), spread=spread)
            for one in range(3)
        ]
    return cluster(*servers, pending=pending)


def test_pods_next_to_a_daemon_set_cost_the_same_on_any_number_of_nodes() -> None:
    costs = [(calls(daemon_set(nodes, others=3)) - calls(daemon_set(nodes))) / nodes for nodes in (20, 160)]
    assert costs[1] <= 1.5 * costs[0]


@pytest.mark.parametrize("large", ["CPU", "several", *thorough("memory", "both")])
def test_a_further_pod_that_is_too_large_for_every_node_costs_the_same_next_to_any_daemon_set(large: str) -> None:
    costs = [calls(too_large(large, nodes, 60)) - calls(too_large(large, nodes, 20)) for nodes in (20, 80)]
    assert costs[1] <= 1.2 * costs[0]


def too_large(large: str, nodes: int, number: int) -> Snapshot:
    """Unlike pods next to a DaemonSet's; half of the nodes have much CPU, half much memory."""
    found = daemon_set(nodes)
    sizes = [(400_000, 64) if one % 2 else (8_000, 4096) for one in range(nodes)]
    servers = [
        server(node.name, mig(), cpu=cpu, memory_gib=memory)
        for node, (cpu, memory) in zip(found.nodes, sizes, strict=True)
    ]
    cpu, memory_gib = {"CPU": (10**7, 1), "memory": (1, 10**5), "both": (10**5, 512), "several": (10**7, 1)}[large]
    wants = ("1g.5gb", 2 if large == "several" else 1)
    odd = [pod(f"odd-{one:03}", wants, cpu=cpu + one, memory_gib=memory_gib + one) for one in range(number)]
    return cluster(*servers, pending=[*found.pending, *odd])


def daemon_set(nodes: int, others: int = 0) -> Snapshot:
    """Each pod names its node, as the controller of DaemonSets writes it; so many others for each may go to any."""
    names = [f"node-{number:03}" for number in range(nodes)]
    own = [Requirement(key="metadata.name", operator="In", values=(name,)) for name in names]
    pending = [
        replaced(pod(f"on-{name}", "1g.5gb"), node_affinity=(NodeSelectorTerm(labels=(), fields=(node,)),))
        for name, node in zip(names, own, strict=True)
    ]
    pending += [pod(f"any-{name}-{number}", "1g.5gb") for name in names for number in range(others)]
    return cluster(*(server(name, mig()) for name in names), pending=pending)


def steps(snapshot: Snapshot) -> int:
    """Of Python's interpreter in one pass, those of comprehensions among them."""
    found = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal found
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        found += event == "opcode"
        return trace

    plan(snapshot)
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        plan(snapshot)
    finally:
        sys.settrace(before)
    return found


def sizes(number: int, unlike: str) -> list[PodView]:
    """Pods that are all unlike, few of which any GPU could hold."""
    match unlike:
        case "size":
            return [pod(f"pod-{one:03}", f"{1 + one}gb") for one in range(number)]
        case "sizes":
            return [pod(f"pod-{one:03}", f"{1 + one}gb", f"{2 + one}gb") for one in range(number)]
        case "count":
            return [pod(f"pod-{one:03}", ("1g.5gb", 1 + one)) for one in range(number)]
    return [pod(f"pod-{one:03}", "1g.5gb", cpu=1000 + one) for one in range(number)]


@pytest.mark.parametrize(
    ("cut", "unlike"), sparing(cells(["mig", "mps"], ["size", "sizes", "count", "cpu"]), ("mps", "size"))
)
def test_a_further_pod_that_is_unlike_all_others_costs_what_the_others_cost(cut: str, unlike: str) -> None:
    made = mig if cut == "mig" else mps
    servers = [server(f"node-{number}", made(0), made(1), partitioning=cut) for number in range(4)]
    few, more, many = (steps(cluster(*servers, pending=sizes(number, unlike))) for number in (50, 100, 200))

    assert many - more <= 1.25 * 2 * (more - few)


@pytest.mark.parametrize("least_gb", [1, 1000])
def test_a_pass_ends_soon_although_every_pod_requests_another_size(least_gb: int) -> None:
    pending = [pod(f"pod-{number:03}", f"{least_gb + number}gb") for number in range(400)]
    result = plan(cluster(server("node-1", mps(0), mps(1), partitioning="mps"), pending=pending))

    assert len(result.placed) <= result.bound <= (20 if least_gb == 1 else 0)
    assert calls(cluster(server("node-1", mps(), partitioning="mps"), pending=pending)) < 1_000_000


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pods about whose partitions a node was asked before anything was placed, once for each question."""
    found: list[str] = []
    has_partitions = Board.has_partitions

    def counting(board: Board, assignment: Assignment, node: int) -> bool:
        found.append(assignment.pod.name)
        return has_partitions(board, assignment, node)

    monkeypatch.setattr(Board, "has_partitions", counting)
    return found


def test_sizes_that_no_gpu_has_room_for_are_held_against_no_node(asked: list[str]) -> None:
    """Each pod has a size of its own, so that no answer for one of them is one for another."""
    servers = [server(f"node-{n:02}", mps(gpu_model=H100, used_gb=[40]), partitioning="mps") for n in range(20)]
    pending = [pod(f"odd-{gb}", f"{gb}gb") for gb in range(100, 200)]
    holders = [holder(f"node-{n:02}", "40gb", name=f"holder-{n}") for n in range(20)]
    result = plan(cluster(*servers, pods=holders, pending=[*pending, pod("good", "10gb")]))

    assert [placed.key[1] for placed in result.placed] == ["good"]
    assert set(asked) <= {"good"}


def test_sizes_that_no_gpu_has_room_for_together_are_held_against_one_node_of_a_kind(asked: list[str]) -> None:
    servers = [server(f"node-{n:02}", mps(gpu_model=H100), partitioning="mps") for n in range(20)]
    pending = [pod(f"odd-{gb}", f"{gb}gb", "50gb") for gb in range(35, 50)]
    result = plan(cluster(*servers, pending=[*pending, pod("good", "10gb")]))

    assert [placed.key[1] for placed in result.placed] == ["good"]
    assert max(Counter(asked).values()) == 1


def test_a_pod_that_the_first_node_could_take_is_held_against_no_other(asked: list[str]) -> None:
    """No two nodes are alike."""
    used = [[1 + one % 12, 13 + one // 12] for one in range(30)]
    servers = [server(f"node-{n}", mps(gpu_model=H100, used_gb=gb), partitioning="mps") for n, gb in enumerate(used)]
    result = plan(cluster(*servers, pending=[pod("small", "10gb"), pod("two", ("10gb", 2))]))

    assert len(result.placed) == 2
    assert Counter(asked) == {"small": 1, "two": 1}


@pytest.mark.usefixtures("one_try")
def test_pods_of_one_partition_whose_cpu_differs_are_held_against_no_more_nodes_than_a_pass_looks_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nodes of which no two are alike; another pod finds its place all the same."""
    asked: list[object] = []
    fits = NodeCapacity.fits

    def counting(node: NodeCapacity, demand: Any) -> bool:
        asked.append(node)
        return fits(node, demand)

    monkeypatch.setattr(NodeCapacity, "fits", counting)
    monkeypatch.setattr(hopeless, "_LOOKS", 1_000)
    monkeypatch.setattr(split, "_MOST", 1_000)
    used = [[1 + one % 12, 13 + one // 12] for one in range(60)]
    servers = [server(f"node-{n}", mps(gpu_model=H100, used_gb=gb), partitioning="mps") for n, gb in enumerate(used)]
    odd = [pod(f"odd-{one}", "10gb", cpu=10**7 + one, namespace="odd", priority=1) for one in range(200)]
    result = plan(cluster(*servers, pending=[*odd, pod("good", "10gb", namespace="good")]))

    assert [placed.key for placed in result.placed] == [("good", "good")]
    assert len(asked) < 6_000


def test_thousands_of_host_ports_are_not_compared_one_with_the_other() -> None:
    """Reads of a port's number, of a pod that has as many as another one holds on its node."""
    reads = [port_reads(number) for number in (50, 200)]
    assert reads[1] < 5 * reads[0]


def test_a_pod_with_host_ports_costs_the_same_whatever_ports_others_hold_on_its_node() -> None:
    costs = []
    for number in (5, 60):
        holders = [
            replaced(
                holder("node-1", name=f"b{one}"), host_ports=tuple(HostPort(port=100 * one + n) for n in range(90))
            )
            for one in range(number)
        ]
        few, many = (
            [replaced(pod(f"p{n}", "1g.5gb"), host_ports=(HostPort(port=20_000 + n),)) for n in range(m)]
            for m in (1, 9)
        )
        servers = [server("node-1", mig(), mig(1))]
        costs.append(
            steps(cluster(*servers, pods=holders, pending=many)) - steps(cluster(*servers, pods=holders, pending=few))
        )
    assert costs[1] <= 1.2 * costs[0]


def test_a_further_pod_of_a_resource_that_no_node_has_costs_the_same_on_any_number_of_nodes() -> None:
    """Each requests another one, so that no answer for one of them is one for another."""
    costs = []
    for nodes in (4, 48):
        servers = [
            server(f"node-{n:02}", mig(used=[("1g.5gb", 0)]), allocatable={"example.com/some": n}) for n in range(nodes)
        ]
        few, many = (
            [replaced(one, requests=(*one.requests, (f"example.com/of-{one.name}", 1))) for one in pods]
            for pods in ([pod(f"pod-{n:03}", "1g.5gb") for n in range(count)] for count in (10, 40))
        )
        costs.append(calls(cluster(*servers, pending=many)) - calls(cluster(*servers, pending=few)))
    assert costs[1] <= 1.2 * costs[0]


def port_reads(number: int) -> int:
    found = 0

    class Counted(HostPort):
        def __getattribute__(self, name: str) -> Any:
            nonlocal found
            found += name == "port"
            return super().__getattribute__(name)

    def ports(first: int) -> tuple[HostPort, ...]:
        return tuple(Counted(port=first + one) for one in range(number))

    there = replaced(holder("node-1"), host_ports=ports(1))
    plan(
        cluster(server("node-1", mig()), pods=[there], pending=[replaced(pod("a", "1g.5gb"), host_ports=ports(9_000))])
    )
    return found


@pytest.mark.usefixtures("one_try")
def test_of_very_many_priorities_each_has_what_the_higher_ones_leave_and_few_cost_a_look_at_every_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[object] = []
    place_once = strategy.place_once

    def counting(*args: Any) -> Any:
        asked.append(args)
        return place_once(*args)

    monkeypatch.setattr(strategy, "place_once", counting)
    monkeypatch.setattr(strategy, "LOOKS", 500, raising=False)
    large = [pod(f"large-{number:02}", "7g.40gb", priority=10 + number) for number in range(60)]
    other = replace(AWAY, selector=LabelSelector(requirements=(Requirement(key="app", operator="In", values=("a",)),)))
    apart = [pod(f"apart-{n}", "7g.40gb", priority=3, labels=(("app", "a"),), anti_affinity=(other,)) for n in (0, 1)]
    gang = [pod(f"gang-{number}", "7g.40gb", priority=2, gang="gang", gang_size=4) for number in range(4)]
    last = pod("last", "7g.40gb", priority=1)
    servers = [server(f"node-{n:02}", mig(), mig(1), labels={AWAY.topology_key: f"node-{n:02}"}) for n in range(32)]
    for nodes, others in ((30, set()), (32, {"apart-0", "apart-1", "last"})):
        snapshot = cluster(*servers[:nodes], pending=[*large, *apart, *gang, last])
        result = plan(snapshot)
        assert {one.key[1] for one in result.placed} == {one.name for one in large} | others
        assert plan(snapshot) == result
    fewer = {one.key[1] for one in plan(cluster(*servers[:10], pending=[*large, *apart, *gang, last])).placed}
    assert fewer == {one.name for one in large[40:]}
    assert len(asked) < 60


def test_pods_that_may_use_groups_of_their_own_cost_a_pass_no_more_trials_than_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None of them may use one of the nodes, another for each; there is room for the others all the same."""
    asked, searched = list[object](), list[object]()
    fits, moves = PackingCheck.fits, making_room._moves

    def counting(*args: Any) -> bool:
        asked.append(args)
        return fits(*args)

    def searching(*args: Any) -> Any:
        searched.append(args)
        return moves(*args)

    monkeypatch.setattr(PackingCheck, "fits", counting)
    monkeypatch.setattr(making_room, "_moves", searching)
    monkeypatch.setattr(Board, "trials", 500, raising=False)
    names = [f"node-{number:02}" for number in range(30)]
    servers = [server(name, mig(), labels={AWAY.topology_key: name}) for name in names]
    profiles = ("1g.5gb", "2g.10gb", "3g.20gb")
    odd = [
        pod(
            f"odd-{number:03}",
            profiles[number % 3],
            affinity=[Requirement(key=AWAY.topology_key, operator="NotIn", values=(names[number % 30],))],
        )
        for number in range(120)
    ]
    good = [pod(f"good-{number}", "1g.5gb", priority=1, namespace="good") for number in range(7)]
    result = plan(cluster(*servers, pending=[*odd, *good]))

    assert {one.key for one in good} <= {placed.key for placed in result.placed}
    assert 0 < len(asked) < 600
    assert len(searched) <= 500 + 30


@pytest.mark.usefixtures("one_try")
def test_pods_that_differ_in_cpu_do_not_each_search_every_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """A DaemonSet makes each node a group of its own; most of the others find no place."""
    searched, priced = list[object](), list[object]()
    find, shares = Board._find, GroupCapacity.shares

    def searching(*args: Any) -> Any:
        searched.append(args)
        return find(*args)

    def pricing(*args: Any) -> Any:
        priced.append(args)
        return shares(*args)

    monkeypatch.setattr(Board, "_find", searching)
    monkeypatch.setattr(GroupCapacity, "shares", pricing)
    few = daemon_set(30)
    unlike = [pod(f"unlike-{number:03}", "3g.20gb", cpu=1000 + number) for number in range(200)]
    result = plan(replace(few, pending=(*few.pending, *unlike)))

    assert {one.uid for one in few.pending} <= {one.uid for one in result.placed}
    assert len(result.placed) == 60
    assert 0 < len(searched) < 1_500
    assert 0 < len(priced) < 1_500


@pytest.mark.usefixtures("one_try")
def test_to_exchange_pods_of_many_groups_takes_no_more_searches_than_a_pass_has_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None of them may use one of the nodes, another for each, so that each node is a group of its own."""
    searched, trying = Counter[bool](), False
    find, without = Board._find, improvement._Exchange._try_without

    def searching(*args: Any) -> Any:
        searched[trying] += 1
        return find(*args)

    def exchanging(*args: Any) -> None:
        nonlocal trying
        trying = True
        without(*args)
        trying = False

    monkeypatch.setattr(Board, "_find", searching)
    monkeypatch.setattr(improvement._Exchange, "_try_without", exchanging)
    names = [f"node-{number:02}" for number in range(40)]
    labels = [{AWAY.topology_key: name} for name in names]
    used = [[("1g.5gb", start) for start in range(number % 6)] for number in range(40)]
    servers = [server(names[one], mig(used=used[one]), labels=labels[one], cpu=8_000 + one) for one in range(40)]
    odd = [
        pod(
            f"odd-{number:03}",
            ("3g.20gb", "2g.10gb")[number % 2],
            cpu=1_000 + number * 10,
            affinity=[Requirement(key=AWAY.topology_key, operator="NotIn", values=(names[number % 40],))],
        )
        for number in range(400)
    ]
    plan(cluster(*servers, pending=odd), PlannerOptions(improve_steps=100))

    assert 0 < searched[True] < 250


@pytest.mark.usefixtures("one_try")
def test_pods_of_priorities_of_their_own_that_differ_in_cpu_do_not_each_search_every_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lower priority needs less, so that it may fit where higher ones did not; but no GPU has room left."""
    searched = list[object]()
    find = Board._find

    def searching(*args: Any) -> Any:
        searched.append(args)
        return find(*args)

    monkeypatch.setattr(Board, "_find", searching)
    monkeypatch.setattr(strategy, "LOOKS", 1)
    few = daemon_set(30)
    row = [pod(f"row-{n:03}", "3g.20gb", cpu=1000 + n, priority=10 + n) for n in range(120)]
    result = plan(replace(few, pending=(*few.pending, *row)))

    assert {one.uid for one in row[60:]} == {one.uid for one in result.placed}
    assert 0 < len(searched) < 1_500


def test_a_long_list_of_values_costs_a_node_no_more_than_a_short_one() -> None:
    def naming(values: int) -> Snapshot:
        key, names = "kubernetes.io/hostname", tuple(f"other-{number}" for number in range(values))
        own = [Requirement(key=key, operator="NotIn", values=(*names, f"x{number}")) for number in range(4)]
        pending = [pod(f"pod-{number}", "3g.20gb", affinity=[rule]) for number, rule in enumerate(own)]
        return cluster(
            *[server(f"n{number}", mig(), labels={key: f"n{number}"}) for number in range(24)], pending=pending
        )

    assert calls(naming(5_000)) <= 1.05 * calls(naming(20))
