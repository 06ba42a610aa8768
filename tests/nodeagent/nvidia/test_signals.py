"""How many signals NVIDIA's device plugin gets for a lost registration, and what counts as one that had no effect."""

from nodeagent.nvidia.registration import ALLOWED_SECONDS
from nodeagent.nvidia.signals import SIGNALS
from tests.nodeagent.nvidia.nvidia_world import GRACE_SECONDS, STEP_SECONDS, NvidiaWorld
from tests.nodeagent.nvidia.test_registration import PLUGIN, READY, plan_whole


def test_the_third_signal_has_time_to_work(world: NvidiaWorld) -> None:
    """The plugin needs seconds to register."""
    plan_whole(world)
    world.until_lost()
    world.loses = 3
    while len(world.sighups) < SIGNALS:
        world.run(STEP_SECONDS)
    assert world.pass_by(10) == {("Advertising", "Advertising")}
    assert world.tainted()

    world.load(world.loaded)
    world.until(READY)
    assert not world.tainted()


def test_signals_that_healed_are_not_counted_against_the_next_start(world: NvidiaWorld) -> None:
    plan_whole(world)
    world.until(READY)
    for _ in range(SIGNALS + 1):
        world.loses = 1
        world.load(world.loaded)
        world.until(READY, seconds=ALLOWED_SECONDS, step=STEP_SECONDS)

    assert world.sighups == [PLUGIN] * (SIGNALS + 1)


def test_a_plugin_that_starts_again_closes_the_node_only_once_the_kubelet_has_dropped_it(world: NvidiaWorld) -> None:
    """Each start goes through a moment in which the kubelet lists nothing; until it drops it, no pod fits anyway."""
    plan_whole(world)
    world.until(READY)
    closed = world.taints()
    world.loses = 1
    world.load(world.loaded)
    world.pass_by(GRACE_SECONDS - STEP_SECONDS)
    assert world.taints() == closed

    world.until(READY, seconds=ALLOWED_SECONDS - GRACE_SECONDS)
    assert (world.taints(), world.tainted()) == (closed + 1, False)
