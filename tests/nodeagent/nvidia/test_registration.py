"""A registration that the kubelet has lost is healed by a signal, and one that may be Unhealthy devices never is.

The world fails where a plugin with the right config gets a signal below containers, without the taint, or while the
kubelet still counts a device of it.
"""

from collections.abc import Callable

import pytest

from nodeagent.nvidia.advertised_by_nvidia import Registered
from nodeagent.nvidia.registration import ALLOWED_SECONDS, DROPPED_SECONDS
from nodeagent.nvidia.switch_inputs import Inputs
from nodeagent.observed.node import ObservedNode, parse_node
from nodeagent.observed.pods import ObservedPods
from partitioning.nvidia_plugin import NodeConfig
from tests import incidents
from tests.nodeagent.items import replicas, whole
from tests.nodeagent.nvidia.nvidia_world import GRACE_SECONDS, SHARED, STEP_SECONDS, WHOLE, NvidiaWorld

pytestmark = pytest.mark.slow
READY, TIMEOUT = ("Ready", "Confirmed"), ("Failed", "AdvertiseTimeout")
PLUGIN = "nvidia-device-plugin"
FOUR = NodeConfig(replicas=4)


def plan_whole(world: NvidiaWorld) -> None:
    """From the default to whole GPUs: the same devices under the same name, registered again."""
    world.plan_for(whole(0), whole(1), config=NodeConfig())


def lose_now(world: NvidiaWorld) -> None:
    """The plugin is as it was."""
    for resource in (WHOLE, SHARED):
        world.kubelet.devices[resource] = ()
        world.kubelet.capacity[resource] = 0


def test_a_lost_registration_is_healed_by_one_signal(world: NvidiaWorld) -> None:
    plan_whole(world)
    world.until_lost()
    found = world.pass_by(GRACE_SECONDS)
    assert found == {("Advertising", "Advertising")}
    assert "if it has lost the registration" in world.gpu_status()["message"]
    assert (world.sighups, world.tainted()) == ([], True)

    world.until(READY, seconds=ALLOWED_SECONDS - GRACE_SECONDS)
    assert world.sighups == [PLUGIN]
    assert (world.tainted(), world.taints()) == (False, 1)
    assert world.advertised() == {WHOLE: 2}


def test_that_of_replicas_is_healed_too(world: NvidiaWorld) -> None:
    world.plan_for(*(replicas(index, 4, renameByDefault=False) for index in (0, 1)), config=FOUR)
    world.until(READY)
    world.sighups.clear()
    two = NodeConfig(replicas=2)
    world.plan_for(*(replicas(index, 2, renameByDefault=False) for index in (0, 1)), config=two)
    world.until_lost()
    world.until(READY, seconds=ALLOWED_SECONDS, step=STEP_SECONDS)

    assert sorted(world.sighups) == ["mps-control-daemon", PLUGIN]


def test_devices_that_are_unhealthy_from_the_start_are_never_healed(world: NvidiaWorld) -> None:
    """All that the plugin lists: the kubelet shows none, as of one that it does not know, and counts them."""
    plan_whole(world)
    world.until_lost()
    world._gone_at.clear()
    world.pass_by(1000)

    assert world.sighups == []
    assert world.found() == TIMEOUT
    assert "it still counts them, so they are Unhealthy" in world.gpu_status()["message"]
    assert (world.tainted(), world.taints()) == (False, 1)


def holds(world: NvidiaWorld) -> None:
    world.pod_of_other_plugin(WHOLE, world.gpu(0).uuid, world.gpu(0).uuid)


def holds_something_else(world: NvidiaWorld) -> None:
    gone = "GPU-11111111-2222-3333-4444-555555555555"
    world.pod_of_other_plugin(WHOLE, gone, gone)


def does_not_answer(world: NvidiaWorld) -> None:
    world.kubelet.refuses = "no kubelet"


def hides_devices(world: NvidiaWorld) -> None:
    world.kubelet.hides_devices = "not implemented"


def is_remapped(world: NvidiaWorld) -> None:
    incidents.remap_rows(world.machine, world.gpu(1).uuid, pending=True)


def is_broken(world: NvidiaWorld) -> None:
    incidents.remap_rows(world.machine, world.gpu(1).uuid, failed=True)


def is_lost(world: NvidiaWorld) -> None:
    incidents.lose(world.machine, world.gpu(1).uuid)


def is_not_visible(world: NvidiaWorld) -> None:
    world.kubelet.same_processes = False


def is_believed_late(world: NvidiaWorld) -> None:
    world.kubelet.age_seconds = 1.0


def counts_still(world: NvidiaWorld) -> None:
    world.node_ticks = False


@pytest.mark.parametrize(
    "happens",
    [
        holds,
        holds_something_else,
        does_not_answer,
        hides_devices,
        is_remapped,
        is_broken,
        is_lost,
        is_not_visible,
        is_believed_late,
        counts_still,
    ],
)
def test_no_signal_is_sent_while_anything_forbids_it(
    world: NvidiaWorld, happens: Callable[[NvidiaWorld], None]
) -> None:
    plan_whole(world)
    world.until_lost()
    world.pass_by(10)
    happens(world)
    world.pass_by(1000)

    assert world.sighups == []
    assert not world.tainted()
    assert world.taints() == 1


def test_a_plugin_whose_devices_the_node_counts_is_not_forgotten() -> None:
    def moment(**allocatable: int) -> Inputs:
        node = ObservedNode(name="n", uid="u", allocatable={f"nvidia.com/{name}": n for name, n in allocatable.items()})
        nothing = Registered(exact=False, count=0, foreign=False)
        return Inputs(
            node=node, pods=ObservedPods(), held="", held_before="", registered=nothing, answered=True, sound=True
        )

    assert moment().forgotten
    assert moment(gpu=0, shared=0).forgotten
    assert not moment(gpu=1).forgotten


def test_a_node_that_cannot_be_closed_gets_no_signal(world: NvidiaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    plan_whole(world)
    world.until(READY)
    monkeypatch.setattr(world, "set_taint", lambda _present: "forbidden")
    world.loses = 1
    world.load(world.loaded)
    world.pass_by(1000)

    assert world.sighups == []
    assert world.found() == TIMEOUT
    assert "could not be signalled in time: delete the pod" in world.gpu_status()["message"]


def test_a_kubelet_that_answers_now_and_then_keeps_the_node_closed_for_a_bounded_time(world: NvidiaWorld) -> None:
    plan_whole(world)
    world.until_lost()
    world._gone_at.clear()
    end = world.clock.now + 1000
    while world.clock.now < end:
        world.kubelet.refuses = "no kubelet" if int(world.clock.now) % 20 < 4 else ""
        world.run(STEP_SECONDS)

    assert (world.sighups, world.tainted(), world.taints()) == ([], False, 1)


def test_a_capacity_from_before_the_plugin_started_again_proves_nothing(world: NvidiaWorld) -> None:
    """All its devices are Unhealthy from the start, and the kubelet has not written that yet."""
    plan_whole(world)
    world.until_lost()
    while not world.sighups and any(world.kubelet.capacity.values()):
        world.run(STEP_SECONDS)
    world.pass_by(DROPPED_SECONDS - 5)
    world.node_ticks = False
    world.load(world.loaded)
    world.kubelet.devices[WHOLE] = ()
    world.pass_by(10)
    world.node_ticks = True
    world.pass_by(1000)

    assert world.sighups == []
    assert world.found() == TIMEOUT


def test_a_capacity_that_the_kubelet_writes_no_more_proves_nothing(world: NvidiaWorld) -> None:
    """It took the plugin's devices, all of them Unhealthy, and does not reach the API any more."""
    plan_whole(world)
    world.until_lost()
    while any(parse_node(world.node).capacity.values()):
        world.run(STEP_SECONDS)
    world.node_ticks = False
    world.load(world.loaded)
    world.kubelet.devices[WHOLE] = ()
    world.pass_by(1000)

    assert world.sighups == []
    assert world.found() == TIMEOUT
    assert "the kubelet has not written the Node since the plugin began to serve" in world.gpu_status()["message"]
    assert (world.tainted(), world.taints()) == (False, 1)


def test_a_registration_that_is_lost_each_time_gets_three_signals(world: NvidiaWorld) -> None:
    plan_whole(world)
    world.until_lost()
    world.loses = 100
    found = world.pass_by(4 * ALLOWED_SECONDS)
    assert found == {("Advertising", "Advertising"), TIMEOUT}
    assert world.sighups == [PLUGIN] * 3
    assert "3 signals had no effect: delete the pod" in world.gpu_status()["message"]
    assert (world.tainted(), world.taints()) == (False, 1)

    assert world.pass_by(1000) == {TIMEOUT}
    assert (len(world.sighups), world.taints()) == (3, 1)

    world.loses = 0
    world.end("plugin")
    world.start("plugin")
    world.until(READY, seconds=120)


def test_a_plugin_that_cannot_be_signalled_is_reported(world: NvidiaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world, "sighup", lambda _uid, _program: "no process of it is found")
    world.restart()
    plan_whole(world)
    world.until_lost()
    world.pass_by(1000)

    assert world.found() == TIMEOUT
    assert "no process of it is found: delete the pod" in world.gpu_status()["message"]
    assert (world.tainted(), world.taints()) == (False, 1)


@pytest.mark.parametrize("restarted", [False, True])
def test_after_it_was_confirmed_a_lost_registration_is_reported_only(world: NvidiaWorld, restarted: bool) -> None:
    """Its plugin may have marked a GPU as Unhealthy since, also if the agent was away."""
    plan_whole(world)
    world.until(READY)
    closed = world.taints()
    lose_now(world)
    if restarted:
        world.restart()
    world.pass_by(1000)

    assert (world.sighups, world.taints()) == ([], closed)
    assert world.found() == TIMEOUT


def test_the_next_start_of_the_plugin_may_be_healed_after_one_was_confirmed(world: NvidiaWorld) -> None:
    plan_whole(world)
    world.until(READY)
    world.loses = 1
    world.load(world.loaded)
    world.until(READY, seconds=ALLOWED_SECONDS, step=STEP_SECONDS)

    assert world.sighups == [PLUGIN]
    assert not world.tainted()


def test_below_a_container_the_next_start_is_not_healed(world: NvidiaWorld) -> None:
    plan_whole(world)
    world.until(READY)
    holds(world)
    closed = world.taints()
    world.loses = 1
    world.load(world.loaded)
    world.pass_by(1000)

    assert (world.sighups, world.taints()) == ([], closed)


def test_an_agent_that_starts_again_heals_it(world: NvidiaWorld) -> None:
    plan_whole(world)
    world.until_lost()
    world.pass_by(200)
    world.restart()
    world.until(READY, seconds=ALLOWED_SECONDS, step=STEP_SECONDS)

    assert world.sighups == [PLUGIN]
    assert not world.tainted()
