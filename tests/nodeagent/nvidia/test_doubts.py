"""NVIDIA's device plugin as the backend, where not everything of the node is known, or a pod comes too late."""

from typing import NoReturn

import pytest

from nodeagent.hardware.driver import DriverError
from nodeagent.nvidia import node_files
from partitioning.nvidia_plugin import NodeConfig
from tests.drawn import examples
from tests.nodeagent.items import mps, replicas, whole
from tests.nodeagent.nvidia.nvidia_world import SHARED, WHOLE, NvidiaWorld

FOUR = NodeConfig(replicas=4, renamed=True)
TWO = NodeConfig(replicas=2, renamed=True)
READY = ("Ready", "Confirmed")


def shared(world: NvidiaWorld, config: NodeConfig = FOUR) -> None:
    """Both GPUs as so many replicas."""
    world.plan_for(*(replicas(index, config.replicas) for index in (0, 1)), config=config)


def holder(world: NvidiaWorld, device: str, resource: str = WHOLE) -> tuple[str, str]:
    return world.pod_of_other_plugin(resource, device, device)


def never_answers(world: NvidiaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on, and to an agent that has not read a GPU yet."""
    world.restart()

    def fails(_before: object = ()) -> NoReturn:
        raise DriverError("counting the GPUs", "Unknown Error")

    monkeypatch.setattr(world.driver, "observe", fails)


def test_an_agent_that_never_read_the_gpus_requests_no_config(
    world: NvidiaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder(world, world.gpu(0).uuid)
    never_answers(world, monkeypatch)
    shared(world)
    world.settle(60)

    assert world.moves == []
    assert not world.tainted()


def test_an_agent_that_never_read_the_gpus_ends_no_daemon_of_ours(
    world: NvidiaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.end("plugin")
    world.kubelet.devices = {}
    world.apply(mps(0, 10))
    for _ in range(6):
        world.pass_only()
        world.plugin.step()
        world.clock.now += 0.5
    slice_10gb = next(device for device in world.plugin.config.devices if device.gpu == world.gpu(0).uuid)
    holder(world, slice_10gb.id, slice_10gb.resource)
    never_answers(world, monkeypatch)
    shared(world)
    world.settle(60)

    assert slice_10gb in world.plugin.config.devices


def test_the_holder_of_a_gpu_that_is_lost_counts(world: NvidiaWorld) -> None:
    pod = holder(world, "GPU-11111111-2222-3333-4444-555555555555")
    shared(world)
    world.until(("Advertising", "WaitingForRelease"))
    assert "pod default/p1 holds GPU-11111111" in world.condition("Ready")["message"]
    assert world.moves == []

    world.finish(pod)
    world.until(READY)


def test_a_device_that_becomes_unhealthy_is_not_healed_by_a_signal(world: NvidiaWorld) -> None:
    shared(world)
    world.until(READY)
    world.sighups.clear()
    ids = world.kubelet.devices[SHARED]
    world.kubelet.devices[SHARED] = tuple(i for i in ids if not i.startswith(world.gpu(1).uuid))
    world.pass_by(150)

    assert world.sighups == []
    assert world.found() == ("Failed", "AdvertiseTimeout")


def test_a_kubelet_that_does_not_answer_causes_no_signal(world: NvidiaWorld) -> None:
    shared(world)
    world.until(READY)
    world.sighups.clear()
    world.kubelet.refuses = "no kubelet"
    world.pass_by(150)

    assert world.sighups == []


def test_a_kubelet_that_does_not_show_the_reload_causes_no_signal(world: NvidiaWorld) -> None:
    """What it showed last is the config before; meanwhile pods come, and devices may be Unhealthy."""
    shared(world)
    world.until(READY)
    world.plan_for(whole(0), whole(1), config=NodeConfig())
    while not world.moves[1:]:
        world.run()
    world.sighups.clear()
    world.kubelet.hides_devices = "not implemented"
    world.pass_by(75)
    holder(world, world.gpu(0).uuid)
    world.pass_by(300)

    assert world.sighups == []
    assert world.found() == ("Failed", "AdvertiseTimeout")
    assert not world.tainted()

    world.kubelet.hides_devices = ""
    world.until(READY)


@pytest.mark.parametrize("config", [NodeConfig(), FOUR], ids=["whole", "replicas"])
def test_a_clock_that_was_set_back_after_a_confirmation_causes_no_signal(
    world: NvidiaWorld, monkeypatch: pytest.MonkeyPatch, config: NodeConfig
) -> None:
    """What starts again then looks older than the key."""
    world.plan_for(*(replicas(i, 4) if config.shared else whole(i) for i in (0, 1)), config=config)
    world.until(READY)
    world.sighups.clear()
    holder(world, min(config.ids(world.gpu(0).uuid)), config.resource)
    real = node_files._changed_ns
    monkeypatch.setattr(node_files, "_changed_ns", lambda path: max(real(path) - 3600 * 10**9, 0))
    world.load(world.loaded)
    world.restart()
    world.pass_by(300)

    assert world.sighups == []
    assert world.found() == READY


def test_devices_of_another_plugin_cause_no_signal_to_one_that_was_confirmed(world: NvidiaWorld) -> None:
    world.plan_for(whole(0), whole(1), config=NodeConfig())
    world.until(READY)
    holder(world, world.gpu(0).uuid)
    world.sighups.clear()
    world.kubelet.devices[SHARED] = (f"{world.gpu(1).uuid}::0",)
    world.pass_by(300)

    assert world.sighups == []
    assert world.found() == ("Failed", "AdvertiseTimeout")


def stalled(world: NvidiaWorld) -> str:
    """Why; empty where it is not."""
    found = {each["type"]: each for each in world.status()["conditions"]}["Stalled"]
    return str(found["message"]) if found["status"] == "True" else ""


def test_a_pod_that_came_too_late_is_named_and_no_other_gets_its_gpu_too(world: NvidiaWorld) -> None:
    shared(world)
    world.until(READY)
    world.plan_for(whole(0), whole(1), config=NodeConfig())
    while not world.moves[1:]:
        world.run()
    pod = holder(world, f"{world.gpu(0).uuid}::0", SHARED)
    world.pass_by(150)

    assert world.found()[1] == "WaitingForRelease"
    assert "pod default/p1" in world.gpu_status()["message"]
    assert world.tainted()

    assert "the node has the taint gpuplan.dev/changing" in world.gpu_status()["message"]
    assert not stalled(world)

    world.pass_by(600)
    assert "pod default/p1" in stalled(world), "it is a person's turn, and no wait like any other"
    assert "so the node stays closed: delete the pod" in stalled(world)
    assert world.tainted(), "nothing else keeps pods from a GPU that is held"

    world.finish(pod)
    world.until(READY, seconds=120)
    assert not world.tainted()


def test_a_pod_that_keeps_the_daemon_from_its_limits_does_not_close_the_node(world: NvidiaWorld) -> None:
    shared(world)
    world.until(READY)
    shared(world, TWO)
    while not world.moves[1:]:
        world.run()
    world.run()
    holder(world, f"{world.gpu(0).uuid}::0", SHARED)
    world.pass_by(100)

    assert world.found()[1] == "WaitingForRelease"
    assert not world.tainted()


def test_a_config_that_returns_is_proved_again(world: NvidiaWorld) -> None:
    """Four, then two, which is never confirmed, then four again: what was made for four the first time is no proof."""
    shared(world)
    world.until(READY)
    shared(world, TWO)
    while not world.moves[1:]:
        world.run()
    shared(world)
    world.sighups.clear()
    world.until(READY, seconds=120)

    assert world.moves == [FOUR.key, TWO.key, FOUR.key]
    assert "mps-control-daemon" in world.sighups


def test_the_signal_is_sent_at_once_also_the_second_time(world: NvidiaWorld) -> None:
    shared(world)
    world.until(READY)
    for config in (TWO, FOUR, TWO):
        shared(world, config)
        world.until(READY, seconds=40)


def test_a_plugin_that_never_takes_the_signal_is_not_signalled_for_ever(
    world: NvidiaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    def sighup(_uid: str, program: str) -> str:
        sent.append(program)
        return ""

    monkeypatch.setattr(world, "sighup", sighup)
    world.restart()
    world.signals = False
    world.plan_for(whole(0), whole(1), config=NodeConfig())
    for _ in range(max(examples(400), 120)):
        world.run(5.0)

    assert world.found() == ("Failed", "AdvertiseTimeout")
    assert sent == ["nvidia-device-plugin"] * 3


def test_no_pod_is_let_in_while_the_plugin_offers_the_devices_of_before(world: NvidiaWorld) -> None:
    """Its signal was lost, and the MPS daemon's pod, which the taint keeps off, is not there yet."""
    world.signals = False
    shared(world)
    while not world.moves:
        world.run()
    for _ in range(200):
        world.run()
        assert world.tainted() or not world.kubelet.devices[WHOLE]
    world.until(READY, seconds=120)


def test_a_daemon_that_read_the_default_is_signalled_when_its_link_names_the_key_again(
    world: NvidiaWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its config-manager restarts again and again, and begins with the default: the first signal came just then."""
    shared(world)
    world.until(READY)
    sent: list[str] = []
    real = world.sighup

    def sighup(uid: str, program: str) -> str:
        sent.append(program)
        return real(uid, program) if sent[1:] else ""

    monkeypatch.setattr(world, "sighup", sighup)
    world.restart()
    shared(world, TWO)
    while not sent:
        world.run()
    world.choose("mps", "default")
    world.pass_only()
    world.until(READY, seconds=20)


@pytest.mark.parametrize("lives_seconds", [30.0, pytest.param(70.0, marks=pytest.mark.thorough)])
def test_agents_that_end_again_and_again_do_not_keep_the_node_closed_for_a_controller_that_is_away(
    world: NvidiaWorld, lives_seconds: float
) -> None:
    """Each begins with no memory of its own for how long the one before has waited."""
    world.controls = False
    shared(world)
    closed: list[bool] = []
    for _ in range(int(1800 / lives_seconds)):
        for _ in range(int(lives_seconds / 10)):
            world.run(10.0)
            closed.append(world.tainted())
        world.restart()
    assert 0 < sum(closed) / len(closed) < 0.3

    world.controls = True
    world.until(READY, seconds=400)
    assert not world.tainted()
