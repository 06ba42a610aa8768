"""How soon the agent makes its next pass: a pause after a failure is waited for only where the pass could end it."""

from collections.abc import Callable

import pytest

from nodeagent.agent import LONGEST_SECONDS
from nodeagent.process import LEAST_PAUSE_SECONDS
from nodeagent.steps.actuator import ACTING_SECONDS
from sandbox.driver import processes
from tests.drawn import thorough
from tests.nodeagent.conftest import MakeWorld, cut, empty
from tests.nodeagent.items import mig, pod_json, started
from tests.nodeagent.world import World

pytestmark = pytest.mark.slow


def with_a_pause(make_world: MakeWorld) -> World:
    """A process that the driver hides keeps an instance, so the agent pauses after each refused destroy."""
    world = make_world(cut(("3g.40gb", 0)))
    world.settle(4)
    uuid = world.gpu().instances[0].uuid
    assert uuid is not None
    processes.attach(world.machine, uuid, 99, 1, hidden=True)
    world.apply(mig(0, ("7g.80gb", 0)))
    world.settle(10)
    return world


def test_a_pause_is_waited_for_while_its_gpu_is_worked_on(make_world: MakeWorld) -> None:
    world = with_a_pause(make_world)
    assert world.found() == ("WaitingForRelease", "HeldOpen")

    dues = []
    for _ in range(20):
        due = world.pass_only()
        world.step(due)
        dues.append(due)

    assert all(0 < due <= LONGEST_SECONDS for due in dues), dues


def test_a_pause_of_a_gpu_that_is_left_alone_makes_no_passes(make_world: MakeWorld) -> None:
    """Alongside another device plugin nothing is changed, so a pause from before is never used up."""
    world = with_a_pause(make_world)

    dues = []
    for _ in range(200):
        world.step(0.5)
        world.kubelet.devices["nvidia.com/gpu"] = ("GPU-strange",)
        world.tick()
        dues.append(world.pass_only())

    assert world.found() == ("Failed", "ForeignOwner")
    assert min(dues[-50:]) >= 1, dues[-50:]


def dues_of(world: World, seconds: float) -> list[float]:
    """Of the passes in this time, each made when it is due; a status is written as it changes."""
    until, dues = world.clock.now + seconds, []
    while world.clock.now < until:
        dues.append(world.pass_only())
        world.step(max(dues[-1], LEAST_PAUSE_SECONDS))
    return dues


def waits_for_a_pod(make_world: MakeWorld) -> World:
    world = make_world(cut(("3g.40gb", 0)))
    world.settle(4)
    world.pod("nvidia.com/mig-3g.40gb", name="a")
    world.apply(mig(0, ("7g.80gb", 0)))
    return world


def is_paused(make_world: MakeWorld) -> World:
    world = make_world(cut(("3g.40gb", 0)))
    world.settle(4)
    world.apply(mig(0, ("7g.80gb", 0)), paused=True)
    return world


def withdraws_without_a_plugin(make_world: MakeWorld) -> World:
    world = make_world(cut(("3g.40gb", 0)))
    world.settle(4)
    world.plugin.alive = False
    world.apply(mig(0, ("7g.80gb", 0)))
    return world


@pytest.mark.parametrize("state", [waits_for_a_pod, *thorough(is_paused, withdraws_without_a_plugin)])
def test_a_state_that_lasts_is_looked_at_every_ten_seconds(
    make_world: MakeWorld, state: Callable[[MakeWorld], World]
) -> None:
    world = state(make_world)

    first, then = dues_of(world, 60), dues_of(world, 600)

    assert sum(due <= 1 for due in first) >= 3, "soon at first"
    assert len(first) < 60
    assert then == [LONGEST_SECONDS] * 60


def test_what_happens_is_looked_at_soon_again(make_world: MakeWorld) -> None:
    world = waits_for_a_pod(make_world)
    dues_of(world, 120)

    key = ("default", "a")
    world.pods[key]["status"] = {**started("Succeeded"), "containerStatuses": []}
    dues = dues_of(world, 4)

    assert max(dues) == 1.0, "the kubelet lists the ended pod for some seconds more, and sends no event"
    world.finish(key)
    dues_of(world, 2)
    assert world.found() == ("Ready", "Confirmed")


def test_other_pods_of_the_node_keep_no_state_from_being_looked_at_less(make_world: MakeWorld) -> None:
    world = waits_for_a_pod(make_world)
    for number in range(60):
        key = ("default", f"web-{number}")
        world.pods[key] = {**pod_json(key, "cpu", 1, uid=key[1]), "status": started()}
        world.kubelet.known.add(key)
        world.kubelet.held[key] = {}
        last = dues_of(world, 1)

    assert last == [LONGEST_SECONDS]


def test_slow_steps_are_spread_over_passes_that_end(make_world: MakeWorld) -> None:
    """Fourteen instances, two driver calls each, three seconds a call: 84 s of work."""
    world = make_world(*empty(2))
    world.apply(mig(0, "1g.10gb*7"), mig(1, "1g.10gb*7"))

    def slow() -> None:
        world.clock.now += 3.0

    world.driver.before_change = slow
    dues, took = [], []
    while world.layout(1).count("1g.10gb") < 7:
        started = world.clock.now
        dues.append(world.pass_only())
        took.append(world.clock.now - started)
        world.step(dues[-1])
        assert len(dues) < 20, "it must come to an end"

    step_seconds = 6.0
    assert max(took) <= ACTING_SECONDS + step_seconds
    assert dues[:3] == [0.0, 0.0, 0.0], "the next pass follows at once"
    world.settle(5)
    assert world.found(0) == world.found(1) == ("Ready", "Confirmed")
