"""Which node group serves which pods, where loads alone would leave a pod out."""

from dataclasses import replace

from controller.model.snapshot import Snapshot
from controller.model.views import PodView
from controller.planning import plan
from tests.controller.planner.builders import cluster, mig, pod, server
from tests.controller.planner.checker import check


def pools(*pending: PodView, used: str = "1g.5gb") -> Snapshot:
    """Pool a has one empty GPU and two that are cut, pool b has empty ones only; other pools are open to no pod."""
    begun = [mig(index, used=[(used, 0)], holder="team/trainer") for index in (1, 2)]
    return cluster(
        server("a", mig(0), *begun, labels={"pool": "a"}),
        server("b", mig(0), mig(1), labels={"pool": "b"}),
        pending=pending,
    )


def whole(name: str, pool: str = "", created: int = 0) -> PodView:
    return pod(name, "7g.40gb", created=created, selector={"pool": pool} if pool else {})


def placed(snapshot: Snapshot) -> dict[str, str]:
    result = plan(snapshot)
    check(snapshot, result)
    return {one.key[1]: one.node for one in result.placed}


def test_pods_that_may_go_elsewhere_make_room_for_pods_that_may_not() -> None:
    snapshot = pools(whole("anywhere-1"), whole("anywhere-2", created=1), whole("only-a", "a", created=2))

    assert placed(snapshot)["only-a"] == "a"
    assert len(placed(snapshot)) == 3


def test_no_pod_gives_way_without_a_gain() -> None:
    """Four for three GPUs: one is left out, and not twice."""
    pending = [whole(f"only-a-{n}", "a", created=n) for n in range(2)] + [
        whole(f"b-{n}", created=9 + n) for n in range(2)
    ]
    found = placed(pools(*pending))

    assert sorted(found.values()) == ["a", "b", "b"]


def test_small_pods_fill_gpus_that_are_cut_already() -> None:
    small = [pod(f"small-{n}", "1g.5gb", created=n) for n in range(12)]
    snapshot = pools(*small, whole("only-a", "a", created=20), whole("any-1", created=21), whole("any-2", created=22))

    assert len(placed(snapshot)) >= 14


def test_gangs_stay_whole() -> None:
    gang = [replace(whole(f"gang-{n}", created=n), gang="g", gang_size=2) for n in range(2)]
    found = placed(pools(*gang, whole("only-a", "a", created=5)))

    assert found == {"gang-0": "b", "gang-1": "b", "only-a": "a"}


def test_a_gang_that_is_left_out_does_not_hold_single_pods_back() -> None:
    gang = [replace(whole(f"gang-{n}", "a", created=n), gang="g", gang_size=2) for n in range(2)]
    anywhere = [whole(f"anywhere-{n}", created=5 + n) for n in range(2)]
    found = placed(pools(*gang, *anywhere, whole("only-a", "a", created=9)))

    assert found["only-a"] == "a"
    assert sorted(found) == ["anywhere-0", "anywhere-1", "only-a"]


def two_pools(*pending: PodView) -> Snapshot:
    """One empty GPU each."""
    names = ("a", "b")
    return cluster(*(server(name, mig(0), labels={"pool": name}) for name in names), pending=pending)


def small(name: str, pool: str = "") -> PodView:
    return pod(name, "1g.5gb", selector={"pool": pool} if pool else {})


def test_small_pods_leave_a_group_together_so_that_a_whole_gpu_is_free_there() -> None:
    anywhere = [small(f"small-{n}") for n in range(6)]
    found = placed(two_pools(*anywhere, small("only-b", "b"), whole("large", created=9)))

    assert found["large"] == "a"
    assert len(found) == 8


def test_no_pod_leaves_its_group_where_that_would_not_be_enough() -> None:
    """Two that may not leave pool a keep its GPU from the large one."""
    held = [small("only-a", "a"), small("only-b", "b")]
    found = placed(two_pools(*held, *[small(f"small-{n}") for n in range(6)], whole("large", created=9)))

    assert "large" not in found
    assert len(found) == 8


def test_pods_of_a_higher_level_are_moved_but_never_turned_away() -> None:
    urgent = [replace(small(f"urgent-{n}"), priority=100) for n in range(6)]
    only_b = replace(small("only-b", "b"), priority=100)
    found = placed(two_pools(*urgent, only_b, whole("large", created=9)))

    assert len(found) == 8
    assert found["large"] == "a"


def test_pods_of_a_gang_stay_where_they_were_admitted() -> None:
    """They would have to leave for the large one."""
    gang = [replace(small(f"gang-{n}"), gang="g", gang_size=6) for n in range(6)]
    found = placed(two_pools(*gang, small("only-b", "b"), whole("large", created=9)))

    assert len([name for name in found if name.startswith("gang")]) in (0, 6)


def test_a_pod_makes_room_for_a_larger_one_that_may_not_leave() -> None:
    pending = [
        pod("four-b", "4g.20gb", selector={"pool": "b"}),
        pod("three", "3g.20gb", created=1),
        pod("one-b", "1g.5gb", created=2, selector={"pool": "b"}),
        pod("seven-a", "7g.40gb", created=3, selector={"pool": "a"}),
        pod("another-three", "3g.20gb", created=4),
    ]
    found = placed(two_pools(*pending))

    assert found == {"four-b": "b", "one-b": "b", "three": "a", "another-three": "a"}


def test_of_alike_pods_the_one_that_may_not_go_elsewhere_is_admitted_first() -> None:
    pending = [
        pod("three-b", "3g.20gb", selector={"pool": "b"}),
        pod("four", "4g.20gb", created=1),
        pod("four-a", "4g.20gb", created=2, selector={"pool": "a"}),
        pod("three", "3g.20gb", created=3),
    ]
    found = placed(two_pools(*pending))

    assert found == {"three-b": "b", "four": "b", "four-a": "a", "three": "a"}
