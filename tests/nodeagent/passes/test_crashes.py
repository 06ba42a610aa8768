"""kill -9 of the agent after every single side effect: a new one, from disk alone, must reach the same end.

Each scenario is run once to count the effects, then once per effect (in the quick profile for each sixth). The world
itself fails the test when an instance that a container uses is touched.
"""

import shutil
from collections.abc import Callable, Collection

import pytest

from nodeagent.hardware.driver import GpuInstance
from tests.drawn import points, thorough
from tests.nodeagent.conftest import MakeWorld, cut, empty, plain
from tests.nodeagent.halves import THREE, replace_both
from tests.nodeagent.items import mig, mps
from tests.nodeagent.watched import Killed
from tests.nodeagent.world import World

pytestmark = pytest.mark.slow


def recut(world: World) -> None:
    world.apply(mig(0, ("4g.40gb", 0), ("1g.20gb", 4), ("1g.10gb", 6)))


def recut_around_use(world: World) -> None:
    world.pod(
        "nvidia.com/mig-1g.10gb", device=next(p.id for p in world.plugin.config.devices if "1g.10gb" in p.resource)
    )
    world.apply(mig(0, "1g.10gb*3", "3g.40gb"))


def two_gpus(world: World) -> None:
    world.apply(mig(0, ("7g.80gb", 0)), mig(1, ("1g.10gb", 0), ("1g.10gb", 1)))


def slices(world: World) -> None:
    world.pod("nvidia.com/gpu-20gb")
    world.apply(mps(0, 20, 40, 10))


STORIES: dict[str, tuple[Callable[[MakeWorld], World], Callable[[World], None], tuple[str, ...]]] = {
    "from empty": (lambda make: make(*empty()), recut, ("4g.40gb at 0, 1g.20gb at 4, 1g.10gb at 6",)),
    "from cut": (
        lambda make: make(cut(("3g.40gb", 4), ("1g.10gb", 0), ("2g.20gb", 2))),
        recut,
        ("4g.40gb at 0, 1g.20gb at 4, 1g.10gb at 6",),
    ),
    "around use": (
        lambda make: make(cut(("1g.10gb", 1), ("2g.20gb", 4))),
        recut_around_use,
        (
            "1g.10gb at 0, 1g.10gb at 1, 1g.10gb at 2, 3g.40gb at 4",
            "1g.10gb at 1, 1g.10gb at 2, 1g.10gb at 3, 3g.40gb at 4",
        ),
    ),
    "two GPUs": (
        lambda make: make(cut(("3g.40gb", 4)), cut(("4g.40gb", 0))),
        two_gpus,
        ("7g.80gb at 0",),
    ),
}


def outcome(world: World) -> tuple[object, ...]:
    gpus = world.status()["gpus"]
    return (
        [world.layout(gpu["index"]) for gpu in gpus],
        world.advertised(),
        [(gpu["state"], gpu["planHash"]) for gpu in gpus],
        world.condition("Ready")["status"],
        world.tainted(),
        sorted(path.name for path in world.state.journal.glob("*")),
    )


def run_killed(make_world: MakeWorld, name: str, kill_after: int) -> World:
    make, act, _ = STORIES[name]
    world = make(make_world)
    world.settle(4)
    world.effect.done.clear()
    world.effect.kill_after = kill_after
    act(world)
    world.settle()
    return world


@pytest.mark.parametrize("name", ["from empty", "two GPUs", *thorough("from cut", "around use")])
def test_a_restart_after_any_effect_reaches_the_same_end(make_world: MakeWorld, name: str) -> None:
    unharmed = run_killed(make_world, name, -1)
    expected = outcome(unharmed)
    assert unharmed.layout() in STORIES[name][2]
    assert expected[3:] == ("True", False, [])
    assert len(unharmed.effect.done) >= 10

    for kill_after in points(range(1, len(unharmed.effect.done) + 1)):
        world = run_killed(make_world, name, kill_after)

        assert outcome(world) == expected, world.effect.done[:kill_after]


def test_slices_survive_a_restart_after_any_effect(make_world: MakeWorld) -> None:
    def story(kill_after: int) -> World:
        world = make_world(plain())
        world.apply(mps(0, 20, 20, 10))
        world.settle(8)
        world.effect.done.clear()
        world.effect.kill_after = kill_after
        slices(world)
        world.settle()
        return world

    unharmed = story(-1)
    expected = sorted(device.id for device in unharmed.plugin.config.advertised())
    assert unharmed.found() == ("Ready", "Confirmed")

    for kill_after in points(range(1, len(unharmed.effect.done) + 1)):
        world = story(kill_after)
        assert sorted(device.id for device in world.plugin.config.advertised()) == expected
        assert world.found() == ("Ready", "Confirmed")


@pytest.mark.parametrize("kill_after", points(range(1, 12)))
def test_a_newer_plan_after_the_crash_is_what_counts(make_world: MakeWorld, kill_after: int) -> None:
    world = make_world(*empty())
    world.settle(3)
    world.effect.done.clear()
    world.effect.kill_after = kill_after
    recut(world)
    world.settle(2)

    world.apply(mig(0, ("7g.80gb", 0)))
    world.settle()

    assert world.layout() == "7g.80gb at 0"
    assert world.found() == ("Ready", "Confirmed")
    assert list(world.state.journal.glob("*")) == []


@pytest.mark.parametrize("kill_after", points(range(1, 9)))
def test_what_was_left_half_made_goes_when_the_plan_is_gone(make_world: MakeWorld, kill_after: int) -> None:
    world = make_world(*empty())
    world.settle(3)
    world.effect.done.clear()
    world.effect.kill_after = kill_after
    world.apply(mig(0, ("3g.40gb", 4)))
    try:
        world.run()
    except Killed:
        world.restart()
    world.plan = None
    world.settle(6)

    assert all(not instance.half_made for instance in world.gpu().instances)
    assert list(world.state.journal.glob("*")) == []


def killed_half_way(make_world: MakeWorld) -> World:
    """After the GPU instance, before its compute instance."""
    world = make_world(*empty())
    world.settle(3)
    world.effect.done.clear()
    world.effect.kill_after = 2
    world.apply(mig(0, ("3g.40gb", 4)))
    with pytest.raises(Killed):
        world.run()
    return world


@pytest.mark.parametrize("text", ["", "{", '{"version": 9}'])
def test_a_half_made_instance_whose_journal_is_lost_is_named_and_left_to_people(
    make_world: MakeWorld, text: str
) -> None:
    world = killed_half_way(make_world)
    (journal,) = world.state.journal.glob("*.json")
    journal.write_text(text)
    world.restart()
    world.apply()

    world.settle(6)

    (instance,) = world.gpu().instances
    assert instance.half_made
    message = world.gpu_status()["message"]
    assert f"GPU instance {instance.id} (3g.40gb at 4) has no compute instance" in message
    assert f"nvidia-smi mig -dgi -i 0 -gi {instance.id}" in message

    world.apply(mig(0, ("7g.80gb", 0)))
    world.settle()
    assert world.found() == ("Ready", "Confirmed")
    assert world.gpu_status().get("message", "") == ""
    assert list(world.state.journal.glob("*")) == []


def test_a_newer_generation_interrupts_between_two_steps(make_world: MakeWorld) -> None:
    world = make_world(*empty())
    world.apply(mig(0, *(("1g.10gb", start) for start in range(7))))
    made: list[int] = []

    def newer_plan_after_two() -> None:
        made.append(1)
        if len(made) == 4:  # the compute instance of the second one
            world.apply(mig(0, ("1g.10gb", 0)))
            world._feed()

    world.driver.before_change = newer_plan_after_two
    due = world.pass_only()

    assert due == 0.0
    assert world.layout() == "1g.10gb at 0, 1g.10gb at 1"
    world.step()
    world.settle()
    assert world.layout() == "1g.10gb at 0"


def test_a_pause_leaves_even_our_own_half_made_instance(make_world: MakeWorld) -> None:
    world = killed_half_way(make_world)
    world.restart()
    world.apply(mig(0, ("3g.40gb", 4)), paused=True)

    world.settle(4)
    assert [instance.half_made for instance in world.gpu().instances] == [True]

    world.apply(mig(0, ("3g.40gb", 4)))
    world.settle()
    assert world.found() == ("Ready", "Confirmed")


def kept(world: World, devices: Collection[str]) -> set[str]:
    assert set(devices) <= {instance.uuid for instance in world.gpu().instances}
    return set(devices)


def hold_under_another_id(world: World) -> set[str]:
    (device, *_) = (instance.uuid for instance in world.gpu().instances if instance.uuid)
    world.pod_of_other_plugin(THREE, f"{device}::0", device)
    replace_both(world)
    world.settle()
    return kept(world, {device})


def hold_by_a_claim(world: World) -> set[str]:
    (device, *_) = (instance.uuid for instance in world.gpu().instances if instance.uuid)
    world.pod_of_claim("gpu-0-mig-3g40gb-9-0", device, "record")
    replace_both(world)
    world.settle()
    return kept(world, {device})


def outlive_a_deletion(world: World) -> set[str]:
    """With an endless grace period, and its process ends much later."""
    key = world.pod(THREE)
    world.pods[key]["spec"]["terminationGracePeriodSeconds"] = 2**63 - 1
    return left_and_freed(world, key)


def outlive_a_phase(world: World) -> set[str]:
    key = world.pod(THREE)
    world.settle(3)
    world.pods[key]["status"] = {"phase": "Failed", "reason": "NodeLost", "startTime": "t"}
    world.forget(key)
    return left_and_freed(world, key, "Failed")


def outlive_all_records(world: World) -> set[str]:
    key = world.pod(THREE)
    world.settle(3)
    shutil.rmtree(world.state.root)
    world.state.plugin.directory.mkdir(parents=True)
    world.plugin.restart()
    world.restart()
    return left_and_freed(world, key)


def outlive_a_lost_checkpoint(world: World) -> set[str]:
    key = world.pod(THREE)
    world.settle(3)
    world.kubelet.lose_checkpoint()
    return left_and_freed(world, key)


def left_and_freed(world: World, key: tuple[str, str], phase: str = "") -> set[str]:
    """It is held until its process ends; what it had is free a while later."""
    held = set(world.running[key])
    if not phase:
        world.force_delete(key, seen_by_driver=False)
    replace_both(world)
    world.settle(6)
    world.clock.now += 7200
    world.settle(6)
    world.clock.now += 11
    world.settle(6)
    kept(world, held)
    assert not held & set(world.kubelet.devices[THREE])
    world.end_container(key)
    world.settle(2)
    for _ in range(2):
        world.clock.now += 61
        world.settle(6)
    assert world.layout() == "7g.80gb at 0"
    return held


def replace_a_pod(world: World) -> set[str]:
    key = world.pod(THREE, "web-0")
    while not world.state.holdings.exists():
        world.settle(1)
    world.pods_late = True
    first = world.recreate(key)
    replace_both(world)
    world.settle(2)
    world.pods_late = False
    world.settle(10)
    world.finish(key)
    world.settle()
    return kept(world, world.running[first])


def cut_by_hand(world: World) -> set[str]:
    def recut(gpu_uuid: str, instance: GpuInstance) -> None:
        if not world.by_hand and instance.placed.start == 0:
            world.recut_by_hand(gpu_uuid, instance)

    world.before_destroy = recut
    replace_both(world)
    while not world.by_hand:
        world.settle(1)
    assert "4g.40gb at 0" in world.layout()
    return kept(world, world.by_hand)


@pytest.mark.parametrize(
    "live",
    [
        hold_under_another_id,
        hold_by_a_claim,
        replace_a_pod,
        cut_by_hand,
        outlive_all_records,
        *thorough(outlive_a_deletion, outlive_a_phase, outlive_a_lost_checkpoint),
    ],
)
def test_what_is_in_use_is_kept_wherever_the_agent_is_killed(
    make_world: MakeWorld, live: Callable[[World], set[str]]
) -> None:
    def story(kill_after: int) -> World:
        world = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)))
        world.settle(4)
        world.effect.done.clear()
        world.effect.kill_after = kill_after
        assert live(world)
        return world

    effects = len(story(-1).effect.done)
    assert effects >= 5
    for kill_after in points(range(1, effects + 1), each=10):
        story(kill_after)
