"""The taint of a change keeps every pod off the node: it has a reason in the status, and an end in any case."""

from pathlib import Path

import pytest

from nodeagent.advertise.taint import BOUND_SECONDS
from tests.drawn import cells, thorough
from tests.nodeagent.conftest import MakeWorld, cut
from tests.nodeagent.items import mig
from tests.nodeagent.world import World

THREE = "nvidia.com/mig-3g.40gb"


@pytest.fixture
def halves(make_world: MakeWorld) -> World:
    world = make_world(cut(("3g.40gb", 0), ("3g.40gb", 4)))
    world.write_allocatable = False
    world.restart()
    world.settle(6)
    return world


def test_it_goes_when_the_device_plugin_is_away_and_nothing_is_counted(halves: World) -> None:
    halves.plugin.alive = False
    halves.apply(mig(0, ("7g.80gb", 0)))
    halves.run_for(10.0)
    assert not halves.tainted(), "kubelet and Node show nothing that pods could be bound to"
    assert halves.gpu().layout.counts() == {"3g.40gb": 2}, "and nothing is destroyed for it"


def test_its_reason_is_in_the_status_while_the_node_counts_more(halves: World) -> None:
    halves.node_ticks = False
    halves.apply(mig(0, ("3g.40gb", 0), ("2g.20gb", 4)))
    halves.run_for(20.0)
    assert halves.tainted()
    for message in (halves.gpu_status()["message"], halves.condition("Advertised")["message"]):
        assert "the node has the taint gpuplan.dev/changing" in message
        assert f"the Node still counts more of {THREE} than is advertised" in message


@pytest.mark.parametrize("stuck", ["the Node is never written", *thorough("the kubelet does not answer")])
def test_it_goes_after_its_bound_in_any_case_and_stays_away(halves: World, stuck: str) -> None:
    halves.apply(mig(0, ("3g.40gb", 0), ("2g.20gb", 4)))
    halves.pass_only()
    assert halves.tainted()
    if stuck == "the Node is never written":
        halves.node_ticks = False
    else:
        halves.kubelet.hides_devices = "it is away"
    halves.run_for(BOUND_SECONDS - 60.0)
    assert halves.tainted()
    halves.run_for(120.0)
    assert not halves.tainted()
    set_again = halves.effect.done.count("taint True")
    halves.run_for(1500.0)
    assert not halves.tainted()
    assert halves.effect.done.count("taint True") == set_again

    halves.node_ticks, halves.kubelet.hides_devices = True, ""
    halves.run_for(60.0)
    assert halves.found() == ("Ready", "Confirmed")
    halves.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    halves.pass_only()
    assert halves.tainted(), "the next change has it again"
    halves.run_for(30.0)
    assert halves.found() == ("Ready", "Confirmed")
    assert not halves.tainted()


@pytest.mark.parametrize("lives_seconds", [400.0, *thorough(4.0, 50.0, 90.0)])
def test_agents_that_end_again_and_again_keep_it_for_no_longer_than_one(halves: World, lives_seconds: float) -> None:
    def live() -> None:
        until = halves.clock.now + lives_seconds
        while halves.clock.now < until:
            halves.run(min(lives_seconds / 2, 10.0))

    halves.node_ticks = False
    halves.apply(mig(0, ("3g.40gb", 0), ("2g.20gb", 4)))
    halves.pass_only()
    began = halves.clock.now
    while halves.clock.now < began + BOUND_SECONDS - lives_seconds:
        live()
        assert halves.tainted()
        halves.restart()
    while halves.clock.now < began + 2 * BOUND_SECONDS:
        live()
        halves.restart()
    assert not halves.tainted()
    assert halves.effect.done.count("taint True") == 1, "nor does one of them set it again"

    halves.node_ticks = True
    halves.run_for(60.0)
    assert halves.found() == ("Ready", "Confirmed")
    halves.apply(mig(0, ("3g.40gb", 0), ("3g.40gb", 4)))
    halves.pass_only()
    assert halves.tainted(), "the next change has it again"


@pytest.mark.parametrize("away_seconds", [60.0, 300.0])
def test_agent_that_starts_without_the_api_server_leaves_it_until_the_node_is_written(
    halves: World, away_seconds: float
) -> None:
    halves.node_ticks = False
    halves.apply(mig(0, ("3g.40gb", 0), ("2g.20gb", 4)))
    for _ in range(3):
        halves.run()
    assert halves.tainted()
    halves.restart()
    halves.clock.now += away_seconds
    halves.run_for(4.0)
    assert halves.tainted(), "the kubelet's next tick is ten seconds away"
    halves.node_ticks = True
    halves.run_for(30.0)
    assert not halves.tainted()


@pytest.mark.parametrize("record", ["lost", '{"since": 1e9}', *thorough("{", '{"since": NaN}')])
def test_taint_of_which_no_start_is_known_has_its_bound_from_now_on(halves: World, record: str) -> None:
    halves.node_ticks = False
    halves.apply(mig(0, ("3g.40gb", 0), ("2g.20gb", 4)))
    for _ in range(3):
        halves.run()
    path = halves.state.taint
    assert path.exists()
    if record == "lost":
        path.unlink()
    else:
        path.write_text(record)
    halves.restart()
    halves.run_for(BOUND_SECONDS - 60.0)
    assert halves.tainted()
    halves.run_for(120.0)
    assert not halves.tainted()


def test_taint_that_is_refused_stalls_the_plan_with_its_cause(halves: World, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = "cannot change the taint gpuplan.dev/changing: 403 Forbidden: denied by webhook"
    with monkeypatch.context() as patched:
        patched.setattr(halves, "set_taint", lambda _present: refusal)
        halves.apply(mig(0, ("7g.80gb", 0)))
        halves.run_for(40.0)
        assert halves.condition("Stalled")["status"] == "False"
        assert refusal in halves.gpu_status()["message"]
        halves.run_for(40.0)
        assert halves.found() == ("Failed", "AdvertiseTimeout")
        assert refusal in halves.condition("Stalled")["message"]
        assert halves.gpu().layout.counts() == {"3g.40gb": 2}
    halves.run_for(30.0)
    assert halves.found() == ("Ready", "Confirmed")
    assert halves.condition("Stalled")["status"] == "False"


def test_a_taint_that_cannot_be_taken_off_stalls_the_plan_with_its_cause(
    halves: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal, set_taint = "cannot change the taint gpuplan.dev/changing: 403 Forbidden", halves.set_taint
    with monkeypatch.context() as patched:
        patched.setattr(halves, "set_taint", lambda present: set_taint(present) if present else refusal)
        halves.apply(mig(0, ("3g.40gb", 0), ("2g.20gb", 4)))
        halves.run_for(40.0)
        assert halves.tainted()
        assert halves.condition("Stalled")["status"] == "False"
        halves.run_for(60.0)
        assert halves.condition("Stalled")["status"] == "True"
        assert refusal in halves.condition("Stalled")["message"]
    halves.run_for(20.0)
    assert not halves.tainted()
    assert halves.condition("Stalled")["status"] == "False"


@pytest.mark.parametrize("trouble", ["config.json is gone", "the device plugin is slow"])
def test_it_stays_while_the_list_that_it_is_for_waits_for_the_one_before(halves: World, trouble: str) -> None:
    """A taint that comes and goes wakes the agent each time, and spares no pod anything."""
    if trouble == "config.json is gone":
        halves.state.plugin.config.unlink()
    else:
        halves.plugin.mute = True
        halves.apply(mig(0, ("3g.40gb", 0), ("2g.20gb", 4)))
        halves.settle(2)
    halves.apply(mig(0, ("7g.80gb", 0)))
    for _ in range(10):
        halves.run(0.1)
    assert halves.effect.done.count("taint True") <= 1
    if halves.plugin.mute:
        assert halves.tainted()
        assert "waits for the device plugin" in halves.condition("Advertised")["message"]
        halves.plugin.mute = False
    halves.settle(10)
    assert halves.found() == ("Ready", "Confirmed")
    assert halves.effect.done.count("taint True") <= 2
    assert not halves.tainted()


def unwritable(world: World) -> Path:
    """Its record stays as it is: also root writes nothing over a directory."""
    obstacle = world.state.taint.with_name(f".{world.state.taint.name}.tmp")
    obstacle.mkdir()
    return obstacle


@pytest.mark.parametrize(("record", "lives_seconds"), cells(["", '{"since": 0, "givenUp": true}'], [4.0, 60.0]))
def test_no_list_goes_and_no_taint_comes_while_its_start_cannot_be_remembered(
    halves: World, record: str, lives_seconds: float
) -> None:
    """An agent that ends again and again would keep it for ever, and one that believes an old record sends the list
    without it."""
    halves.clock.now += 2 * BOUND_SECONDS
    halves.state.taint.unlink(missing_ok=True)
    if record:
        halves.state.taint.write_text(record)
    obstacle = unwritable(halves)
    halves.restart()
    halves.node_ticks = False
    halves.apply(mig(0, ("3g.40gb", 0), ("2g.20gb", 4)))
    for _ in range(3):
        halves.run_for(lives_seconds)
        assert not halves.tainted()
        assert halves.advertised() == {THREE: 2}
        halves.restart()
    halves.run_for(70.0)
    assert "taint.json cannot be written" in halves.condition("Stalled")["message"]

    obstacle.rmdir()
    halves.run_for(60.0)
    assert halves.tainted()
    assert halves.advertised()[THREE] == 1
    halves.run_for(BOUND_SECONDS)
    assert not halves.tainted()
    halves.node_ticks = True
    halves.run_for(30.0)
    assert halves.found() == ("Ready", "Confirmed")


@pytest.mark.parametrize("lives_seconds", [pytest.param(20.0, marks=pytest.mark.thorough), 400.0])
def test_a_record_that_cannot_be_written_any_more_bounds_the_taint_of_its_change_and_of_no_other(
    halves: World, lives_seconds: float
) -> None:
    halves.node_ticks = False
    halves.apply(mig(0, ("3g.40gb", 0), ("2g.20gb", 4)))
    halves.pass_only()
    assert halves.tainted()
    began = halves.clock.now
    obstacle = unwritable(halves)
    while halves.clock.now < began + BOUND_SECONDS + 10.0:
        halves.run_for(lives_seconds)
        halves.restart()
    assert not halves.tainted()

    halves.node_ticks = True
    halves.run_for(30.0)
    halves.restart()
    before = halves.advertised()
    halves.apply(mig(0, ("3g.40gb", 4)))
    halves.run_for(10.0)
    assert (halves.tainted(), halves.advertised()) == (False, before)
    obstacle.rmdir()
    halves.run_for(60.0)
    assert halves.found() == ("Ready", "Confirmed")
    assert not halves.tainted()


def test_a_taint_of_which_no_agent_knows_or_can_note_the_start_goes_at_once(halves: World) -> None:
    halves.node_ticks = False
    halves.apply(mig(0, ("3g.40gb", 0), ("2g.20gb", 4)))
    for _ in range(3):
        halves.run()
    assert halves.tainted()
    halves.state.taint.unlink()
    unwritable(halves)
    halves.restart()
    halves.run()
    assert not halves.tainted()
    halves.run_for(60.0)
    assert not halves.tainted()
