"""What a supervisor of MPS daemons put right is in the GPU's message, and once in an Event and the metrics."""

from collections.abc import Iterator

import pytest

from nodeagent.handover.mps_state import MpsDaemon, MpsState, hold_mps_lock, write_mps
from tests.nodeagent.conftest import MakeWorld, plain
from tests.nodeagent.items import mps, whole
from tests.nodeagent.world import World

CHANGED = "the default thread percentage was changed from 100.0 to 1.0 and set back"
LABEL = "gpuplan.dev/mps-daemons"


@pytest.fixture
def world(make_world: MakeWorld) -> Iterator[World]:
    found = make_world(plain())
    found.apply(mps(0, 10))
    found.settle()
    lock = hold_mps_lock(found.state.plugin)
    assert lock is not None
    with lock:
        yield found


def report(world: World, alarm: str, alarms: int) -> None:
    daemon = MpsDaemon(gpu=world.gpu().uuid, ready=True, alarm=alarm, alarms=alarms)
    write_mps(world.state.plugin, MpsState(daemons=(daemon,)))
    world.settle(3)


def events(world: World) -> list[str]:
    return [message for _, reason, message in world.events if reason == "MPSRestored"]


def counted(world: World) -> float:
    return world.metrics.registry.get_sample_value("gpuplan_agent_mps_alarms_total") or 0.0


def test_an_alarm_is_reported_once(world: World) -> None:
    report(world, "", 0)
    report(world, CHANGED, 1)
    report(world, CHANGED, 3)
    assert events(world) == [f"GPU 0: its MPS control daemon: {CHANGED}."] * 2
    assert counted(world) == 3
    assert CHANGED in world.gpu_status()["message"]
    assert world.found() == ("Ready", "Confirmed")
    report(world, "", 3)
    assert CHANGED not in world.gpu_status().get("message", "")


def test_what_an_earlier_agent_has_seen_is_not_reported_again(world: World) -> None:
    report(world, CHANGED, 2)
    assert (events(world), counted(world)) == ([], 0)
    report(world, "", 0)  # another supervisor
    report(world, CHANGED, 1)
    assert (len(events(world)), counted(world)) == (1, 1)


def test_the_node_has_the_label_of_daemons_until_none_has_a_client(world: World) -> None:
    def labels() -> dict[str, str]:
        return dict(world.node["metadata"].get("labels", {}))

    assert LABEL in labels()
    world.apply(whole(0))
    world.settle()
    assert LABEL in labels(), "nothing is known of daemons"
    write_mps(world.state.plugin, MpsState(leftover=("GPU-0",)))
    world.settle()
    assert LABEL in labels(), "a client lives"
    write_mps(world.state.plugin, MpsState())
    world.settle()
    assert LABEL not in labels()
