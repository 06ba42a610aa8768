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
