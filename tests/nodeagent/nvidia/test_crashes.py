"""kill -9 of the agent after every side effect, and pods at any time: the same end, and no label too early."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from partitioning.nvidia_plugin import NodeConfig
from tests.drawn import examples
from tests.nodeagent.items import replicas, whole
from tests.nodeagent.nvidia.conftest import MakeNvidia
from tests.nodeagent.nvidia.nvidia_world import SHARED, WHOLE, NvidiaWorld
from tests.nodeagent.watched import Killed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
CONFIGS = (NodeConfig(), NodeConfig(replicas=2), NodeConfig(replicas=4, renamed=True))


def plan(world: NvidiaWorld, config: NodeConfig) -> None:
    items = [
        replicas(index, config.replicas, renameByDefault=config.renamed) if config.shared else whole(index)
        for index in (0, 1)
    ]
    world.plan_for(*items, config=config)


def live(world: NvidiaWorld, seconds: float) -> None:
    end = world.clock.now + seconds
    while world.clock.now < end:
        try:
            world.run(2.0)
        except Killed:
            world.restart()
            world.step(2.0)


def story(world: NvidiaWorld) -> None:
    plan(world, CONFIGS[2])
    live(world, 40)
    plan(world, CONFIGS[1])
    live(world, 50)


def ending(world: NvidiaWorld) -> tuple[object, ...]:
    return (world.found(), world.label(), world.advertised(), world.daemon_replicas, world.tainted())


@pytest.mark.thorough
def test_a_kill_after_any_effect_ends_as_without_one(make_nvidia: MakeNvidia) -> None:
    world = make_nvidia()
    story(world)
    expected, effects = ending(world), list(world.effect.done)
    assert expected == (("Ready", "Confirmed"), CONFIGS[1].key, {WHOLE: 4}, 2, False)
    for number, effect in enumerate(effects, start=1):
        world = make_nvidia()
        world.effect.kill_after = number
        story(world)
        assert ending(world) == expected, f"killed after effect {number}: {effect}"


ACTIONS = st.one_of(
    st.tuples(st.just("plan"), st.sampled_from(CONFIGS)),
    st.tuples(st.just("pod"), st.integers(0, 7)),
    st.tuples(st.just("end"), st.integers(0, 7)),
    st.tuples(st.just("kill"), st.none()),
    st.tuples(st.just("lose"), st.none()),
    st.tuples(st.just("live"), st.integers(1, 40)),
)


@given(st.lists(ACTIONS, min_size=4, max_size=14))
@settings(max_examples=examples(8), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_no_label_moves_and_no_daemon_reloads_while_a_container_holds_a_device(
    make_nvidia: MakeNvidia, actions: list[tuple[str, object]]
) -> None:
    """The world itself fails where one does; at the end nothing is held, and the last plan comes true.

    After a lost registration it does so once the plugin's pod is deleted, as the message says.
    """
    world = make_nvidia()
    desired = CONFIGS[0]
    plan(world, desired)
    pods: list[tuple[str, str]] = []
    for action, value in actions:
        if isinstance(value, NodeConfig):
            desired = value
            plan(world, desired)
        elif action == "pod" and isinstance(value, int):
            take(world, value, pods)
        elif action == "end" and pods and isinstance(value, int):
            world.finish(pods.pop(value % len(pods)))
        elif action == "kill":
            world.restart()
        elif action == "lose":
            world.loses = 1
        live(world, value if action == "live" and isinstance(value, int) else 1)
    for pod in pods:
        world.finish(pod)
    if ("lose", None) in actions:  # the remedy of a lost registration, for one that comes late too
        world.loses = 0
        world.end("plugin")
        world.start("plugin")
    expected = (("Ready", "Confirmed"), desired.key, False)
    latest = world.clock.now + 700
    while (world.found(), world.label(), world.tainted()) != expected and world.clock.now < latest:
        live(world, 10)
    live(world, 10)
    assert (world.found(), world.label(), world.tainted()) == expected


def take(world: NvidiaWorld, number: int, pods: list[tuple[str, str]]) -> None:
    """The scheduler binds a pod to a free device, as long as the Node has no taint."""
    found = [(resource, i) for resource in (WHOLE, SHARED) for i in world.kubelet.devices.get(resource, ())]
    free = [(resource, i) for resource, i in found if i not in world.kubelet.given()]
    if free and not world.tainted():
        resource, device = free[number % len(free)]
        pods.append(world.pod_of_other_plugin(resource, device, device))
