"""A plan's items follow their cards: the order of GPUs may change with a reboot, and a card may be gone."""

import pytest

from tests.nodeagent.conftest import MakeWorld, cut, plain
from tests.nodeagent.items import Raw, mig, mps, whole
from tests.nodeagent.report.schema import check
from tests.nodeagent.world import World

GONE = "GPU-00000000-0000-0000-0000-000000000001"


def three_cards(make_world: MakeWorld) -> tuple[World, list[str]]:
    """Three alike, each with an item of its own, by uuid."""
    world = make_world(plain(), plain(), plain())
    uuids = [world.gpu(index).uuid for index in range(3)]
    return world, uuids


def by_uuid(uuids: list[str], *items: Raw) -> list[Raw]:
    return [{**item, "uuid": uuids[item["index"]]} for item in items]


def has(world: World, uuid: str) -> list[str]:
    """What is advertised of a card."""
    return sorted(d.resource.rpartition("/")[2] for d in world.plugin.config.healthy() if d.gpu == uuid)


@pytest.mark.parametrize("planned", [False, True])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_items_follow_their_cards(make_world: MakeWorld, order: tuple[int, ...], planned: bool) -> None:
    world, uuids = three_cards(make_world)
    items = by_uuid(uuids, mps(0, 10), mps(1, 20), whole(2))
    world.apply(*([] if planned else items), planned=items if planned else None)
    world.settle()

    world.reboot(order)
    world.restart()
    world.settle()

    assert [world.gpu(index).uuid for index in range(3)] == [uuids[index] for index in order]
    assert [has(world, uuid) for uuid in uuids] == [["gpu-10gb"], ["gpu-20gb"], ["gpu"]]
    assert [world.found(index) for index in range(3)] == [("Ready", "Confirmed")] * 3
    assert [world.gpu_status(index)["uuid"] for index in range(3)] == [uuids[index] for index in order]


@pytest.mark.parametrize("planned", [False, True])
def test_the_item_of_a_card_that_is_gone_fails_alone(make_world: MakeWorld, planned: bool) -> None:
    world, uuids = three_cards(make_world)
    items = by_uuid(uuids, mps(0, 10), mps(1, 20), whole(2))
    world.apply(*([] if planned else items), planned=items if planned else None)
    world.settle()

    world.reboot((1, 2))
    world.restart()
    world.settle()

    assert [has(world, uuid) for uuid in uuids] == [[], ["gpu-20gb"], ["gpu"]]
    assert [world.found(index) for index in range(2)] == [("Ready", "Confirmed")] * 2
    assert world.found(2) == ("Failed", "NoSuchGPU")
    assert "uuid" not in world.gpu_status(2)
    assert f"no GPU of this node is {uuids[0]}, which the plan has with index 0" in world.gpu_status(2)["message"]


def test_another_card_in_its_place_is_left_alone(make_world: MakeWorld) -> None:
    world, uuids = three_cards(make_world)
    world.apply(*by_uuid(uuids, mps(0, 10), mps(1, 20)))
    world.settle()

    world.reboot((2, 1))
    world.restart()
    world.settle()

    assert world.found(0) == ("Failed", "GPUMismatch")
    assert has(world, uuids[2]) == ["gpu"], "as where the plan does not list it"
    assert world.found(1) == ("Ready", "Confirmed")


@pytest.mark.parametrize("planned", [False, True])
def test_the_item_of_a_card_that_is_gone_is_named_where_other_cards_have_all_indexes(
    make_world: MakeWorld, planned: bool
) -> None:
    """The status lists sixteen GPUs, and so it is in the conditions alone."""
    world = make_world(*[plain()] * 16)
    items = by_uuid([*(world.gpu(index).uuid for index in range(1, 16)), GONE], *(whole(index) for index in range(16)))
    world.apply(*([] if planned else items), planned=items if planned else None)
    world.settle()

    assert {world.found(index) for index in range(1, 16)} == {("Ready", "Confirmed")}
    assert world.found(0)[0] == "Unmanaged"
    assert world.condition("Ready")["status"] == "False"
    assert world.condition("Stalled")["reason"] == "NoSuchGPU"
    assert f"no GPU of this node is {GONE}, which the plan has with index 15" in world.condition("Stalled")["message"]
    check(world)


def test_of_two_items_for_one_card_the_pinned_one_counts(make_world: MakeWorld) -> None:
    world, uuids = three_cards(make_world)
    world.apply({**mps(0, 10), "uuid": uuids[1]}, planned=by_uuid(uuids, mps(1, 20), whole(2)))

    world.settle()

    assert [has(world, uuid) for uuid in uuids] == [["gpu"], ["gpu-10gb"], ["gpu"]]
    assert [world.found(index) for index in range(3)] == [
        ("Unmanaged", "Unmanaged"),
        ("Ready", "Confirmed"),
        ("Ready", "Confirmed"),
    ]


def test_an_item_without_a_uuid_is_refused_where_its_gpu_is_that_of_another(make_world: MakeWorld) -> None:
    world, uuids = three_cards(make_world)
    world.apply({**mps(0, 10), "uuid": uuids[1]}, mps(1, 20))

    world.settle()

    assert has(world, uuids[1]) == ["gpu-10gb"]
    assert world.found(3) == ("Failed", "NoSuchGPU")
    assert "the GPU at index 1 is that of another item, by its uuid" in world.gpu_status(3)["message"]


def test_a_uuid_that_is_added_disturbs_nothing(make_world: MakeWorld) -> None:
    world = make_world(cut(("3g.40gb", 0)), plain())
    items = [mig(0, ("3g.40gb", 0), ("2g.20gb", 4)), mps(1, 10)]
    world.apply(*items)
    world.settle()
    world.pod("nvidia.com/gpu-10gb")
    world.settle(4)
    done, events, before = len(world.effect.done), len(world.events), world.status()

    world.apply(*({**item, "uuid": world.gpu(item["index"]).uuid} for item in items))
    world.run()

    assert world.effect.done[done:] == ["status"]
    assert len(world.events) == events
    assert [world.found(0), world.found(1)] == [("Ready", "Confirmed")] * 2
    assert world.status()["devicePlugin"] == before["devicePlugin"]
