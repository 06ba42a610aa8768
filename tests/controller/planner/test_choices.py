"""Which pods to serve, and how: priorities, MPS, several models, and as little change as possible."""

from dataclasses import replace

import pytest

from controller.model.results import NodeChange, PlanningResult
from controller.model.snapshot import Snapshot
from controller.model.views import MigDesired, MpsDesired
from controller.planning import plan
from tests.builders.models import A30, H100, T4
from tests.controller.planner.builders import cluster, holder, mig, mps, pod, server
from tests.controller.planner.checker import check


def planned(snapshot: Snapshot) -> PlanningResult:
    result = plan(snapshot)
    check(snapshot, result)
    return result


def names(result: PlanningResult) -> list[str]:
    return sorted(one.key[1] for one in result.placed)


def slices(change: NodeChange) -> list[list[str]]:
    return [
        [share.label for share in item.desired.slices] for item in change.gpus if isinstance(item.desired, MpsDesired)
    ]


def test_priority_is_strict() -> None:
    pending = [pod("urgent", "7g.40gb", priority=1)] + [pod(f"small{n}", "1g.5gb") for n in range(7)]

    assert names(planned(cluster(server("node-1", mig()), pending=pending))) == ["urgent"]


def test_among_equals_the_most_pods_are_served() -> None:
    pending = [pod("large", "7g.40gb")] + [pod(f"small{n}", "1g.5gb") for n in range(7)]

    assert names(planned(cluster(server("node-1", mig()), pending=pending))) == [f"small{n}" for n in range(7)]


def test_cpu_counts_as_much_as_gpus() -> None:
    """Two that request little of GPUs and much CPU would keep four others out."""
    greedy = [pod(f"greedy{n}", "1g.5gb", cpu=50_000, created=n) for n in range(2)]
    modest = [pod(f"modest{n}", "3g.20gb", cpu=25_000, created=9 + n) for n in range(4)]
    result = planned(cluster(server("node-1", mig(0), mig(1), cpu=100_000), pending=[*greedy, *modest]))

    assert names(result) == [f"modest{n}" for n in range(4)]


@pytest.mark.parametrize(
    ("sizes_gb", "gpus", "expected"),
    [
        ([10, 10, 20], 1, [["10gb", "10gb", "20gb"]]),
        ([40], 1, [["40gb"]]),
        ([30, 30, 10], 2, [["10gb", "30gb"], ["30gb"]]),
    ],
)
def test_mps_slices_fill_gpus(sizes_gb: list[int], gpus: int, expected: list[list[str]]) -> None:
    pending = [pod(f"p{n}", f"{size}gb") for n, size in enumerate(sizes_gb)]
    result = planned(cluster(server("node-1", *(mps(n) for n in range(gpus)), partitioning="mps"), pending=pending))

    assert len(result.placed) == len(sizes_gb)
    assert sorted(slices(result.node_changes[0])) == sorted(expected)


def test_mps_serves_48_clients_per_gpu() -> None:
    pending = [pod(f"p{n}", "1gb", cpu=100, memory_gib=1) for n in range(60)]
    result = planned(cluster(server("node-1", mps(gpu_model=H100), partitioning="mps"), pending=pending))

    assert len(result.placed) == 48


def test_used_mps_slices_stay_and_idle_ones_make_room() -> None:
    gpu = mps(used_gb=[10], idle_gb=[10, 20])
    snapshot = cluster(
        server("node-1", gpu, partitioning="mps"), pods=[holder("node-1", "10gb")], pending=[pod("a", "30gb")]
    )
    result = planned(snapshot)

    assert slices(result.node_changes[0]) == [["10gb", "30gb"]]
    assert result.counts.partitions_destroyed == 2


def test_a_gpu_without_mig_serves_mps() -> None:
    result = planned(cluster(server("node-1", mps(gpu_model=T4), partitioning="mps"), pending=[pod("a", "10gb")]))

    assert names(result) == ["a"]


def test_each_model_gets_what_it_offers() -> None:
    servers = server("node-1", mig(gpu_model=A30)), server("node-2", mig(gpu_model=H100))
    result = planned(cluster(*servers, pending=[pod("a", "2g.12gb"), pod("b", "2g.20gb")]))

    assert {one.key[1]: one.node for one in result.placed} == {"a": "node-1", "b": "node-2"}


def test_one_media_profile_per_gpu() -> None:
    pending = [pod(f"p{n}", "1g.10gb+me") for n in range(3)]
    result = planned(cluster(server("node-1", mig(0, gpu_model=H100), mig(1, gpu_model=H100)), pending=pending))

    assert len(result.placed) == 2


def test_selectors_send_pods_where_they_may_go() -> None:
    servers = server("node-1", mig(), labels={"zone": "a"}), server("node-2", mig(), labels={"zone": "b"})
    pending = [pod(f"a{n}", "3g.20gb", selector={"zone": "a"}) for n in range(2)]
    pending += [pod(f"b{n}", "3g.20gb") for n in range(2)]
    result = planned(cluster(*servers, pending=pending))

    assert len(result.placed) == 4


def test_of_equally_many_pods_the_older_are_placed() -> None:
    pending = [pod("old", "7g.40gb"), pod("young", "1g.5gb", created=1)]
    assert names(planned(cluster(server("node-1", mig()), pending=pending))) == ["old"]
    pending = [pod("young", "7g.40gb", created=1), pod("old", "1g.5gb")]
    assert names(planned(cluster(server("node-1", mig()), pending=pending))) == ["old"]


def test_older_pod_that_would_cost_two_younger_ones_waits() -> None:
    """There are three places of 3g; two of them would go for the large pod."""
    young = [pod(f"young{n}", "3g.20gb", created=3 + n) for n in range(2)]
    pending = [pod("first", "3g.20gb"), pod("second", "3g.20gb", created=1), pod("old", "7g.40gb", created=2), *young]
    one_whole = server("node-1", mig(0)), server("node-2", mig(0, used=[("3g.20gb", 4)]))
    result = planned(cluster(*one_whole, pods=[holder("node-2", "3g.20gb")], pending=pending))
    assert names(result) == ["first", "second", "young0"]


def test_older_pod_takes_no_place_from_one_that_is_more_urgent_or_has_it_already() -> None:
    old = pod("old", "7g.40gb")
    urgent = cluster(server("node-1", mig()), pending=[old, pod("urgent", "1g.5gb", created=1, priority=1)])
    assert names(planned(urgent)) == ["urgent"]
    idle = cluster(server("node-1", mig(idle=[("1g.5gb", 0)])), pending=[old, pod("young", "1g.5gb", created=1)])
    assert names(planned(idle)) == ["young"]
    empty = cluster(server("node-1", mig()), pending=idle.pending)
    reserved = replace(empty, reservations={"uid-young": "node-1"})
    assert names(planned(reserved)) == ["young"]


def test_older_pod_of_one_level_costs_no_pod_of_the_next() -> None:
    """In place of the young pod the old one would fill the GPU that the least urgent pod shares."""
    pending = [
        pod("old", "7g.40gb", priority=5),
        pod("young", "3g.20gb", created=1, priority=5),
        pod("low", "3g.20gb", created=2),
    ]
    assert names(planned(cluster(server("node-1", mig()), pending=pending))) == ["low", "young"]


def test_idle_partitions_survive_where_others_are_free() -> None:
    gpus = mig(0, idle=[("3g.20gb", 4), ("3g.20gb", 0)]), mig(1)
    result = planned(cluster(server("node-1", *gpus), pending=[pod("a", "7g.40gb")]))

    assert [change.changed for change in result.node_changes] == [(1,)]


def test_an_idle_partition_on_a_changed_gpu_survives_where_it_can() -> None:
    gpu = mig(idle=[("1g.5gb", 0), ("1g.5gb", 6)])
    result = planned(cluster(server("node-1", gpu), pending=[pod("a", "4g.20gb"), pod("b", "2g.10gb")]))

    ((item,),) = (change.gpus for change in result.node_changes)
    assert isinstance(item.desired, MigDesired)
    assert str(item.desired.layout) == "4g.20gb at 0, 2g.10gb at 4, 1g.5gb at 6"
    assert result.counts.partitions_destroyed == 1


def test_other_resources_and_host_ports_are_respected() -> None:
    disk = [
        replace(one, requests=tuple(sorted([*one.requests, ("ephemeral-storage", 60)])))
        for one in (pod("a", "1g.5gb"), pod("b", "1g.5gb"))
    ]
    result = planned(cluster(server("node-1", mig(), allocatable={"ephemeral-storage": 100}), pending=disk))

    assert len(result.placed) == 1


@pytest.mark.parametrize("resource", ["ephemeral-storage", "hugepages-2Mi", "example.com/nic", "memory"])
@pytest.mark.parametrize("full", [4, 40])
def test_however_many_nodes_lack_something_the_one_that_has_it_is_found(resource: str, full: int) -> None:
    """They have more CPU, so that they come first. Four of them with eight GPUs each kept the pod waiting for ever."""
    lacking = [server(f"node-{number:02}", *map(mig, range(8)), cpu=64_000) for number in range(full)]
    servers = [*lacking, server("one-more", *map(mig, range(8)), cpu=16_000)]
    room = dict.fromkeys((f"node-{number:02}" for number in range(full)), 10) | {"one-more": 1000}
    nodes = [
        (replace(node, allocatable={**node.allocatable, resource: room[node.name]}), view) for node, view in servers
    ]
    one = pod("a", "1g.5gb", memory_gib=0)
    one = replace(one, requests=tuple(sorted({**dict(one.requests), resource: 60}.items())))

    assert [placed.node for placed in planned(cluster(*nodes, pending=[one])).placed] == ["one-more"]


def test_pod_slots_are_respected() -> None:
    result = planned(cluster(server("node-1", mig(), pods=2), pending=[pod(f"p{n}", "1g.5gb") for n in range(3)]))

    assert len(result.placed) == 2


def test_the_bound_shows_how_much_more_was_possible() -> None:
    result = planned(cluster(server("node-1", mig()), pending=[pod(f"p{n}", "3g.20gb") for n in range(5)]))

    assert (len(result.placed), result.bound) == (2, 2)


@pytest.mark.parametrize("resource", ["cpu", "memory"])
@pytest.mark.parametrize("idle", [[], [("1g.5gb", 0)]], ids=["to be created", "idle"])
@pytest.mark.parametrize("partitions", [1, 2])
def test_a_pod_that_requests_none_of_it_fits_a_node_that_is_overcommitted(
    resource: str, idle: list[tuple[str, int]], partitions: int
) -> None:
    """As for kube-scheduler, which never finds too little of what a pod does not request."""
    full, view = server("node-1", mig(idle=idle))
    hog = replace(pod("hog"), node="node-1", gpu=(), requests=((resource, 2 * full.allocatable[resource]),))
    waiting = pod("waiting", ("1g.5gb", partitions))
    modest = replace(waiting, requests=tuple(pair for pair in waiting.requests if pair[0] != resource))

    result = plan(cluster((full, view), pods=[hog], pending=[modest]))

    assert [placed.node for placed in result.placed] == ["node-1"]
    assert not plan(cluster((full, view), pods=[hog], pending=[waiting])).placed
