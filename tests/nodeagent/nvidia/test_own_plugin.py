"""Before NVIDIA's plugin is asked for anything, gpuplan's own one withdraws: one that does not is reported."""

import pytest

from partitioning.nvidia_plugin import NodeConfig
from tests.nodeagent.items import mps, replicas
from tests.nodeagent.nvidia.nvidia_world import NvidiaWorld

FOUR = NodeConfig(replicas=4, renamed=True)


@pytest.fixture
def sliced(world: NvidiaWorld) -> NvidiaWorld:
    """Our own plugin serves both GPUs in slices, and NVIDIA's runs already."""
    world.end("plugin")
    world.kubelet.devices = {}
    world.apply(mps(0, 10), mps(1, 10))
    for _ in range(6):
        world.pass_only()
        world.plugin.step()
        world.clock.now += 0.5
    assert world.plugin.config.advertised()
    world.start("plugin")
    return world


def switch(world: NvidiaWorld) -> None:
    world.plan_for(*(replicas(index, 4) for index in (0, 1)), config=FOUR)


def test_it_withdraws_first(sliced: NvidiaWorld) -> None:
    switch(sliced)
    sliced.until(("Ready", "Confirmed"), seconds=120)

    assert sliced.plugin.config.devices == ()


def test_a_plugin_that_does_not_answer_is_reported_with_the_remedy(sliced: NvidiaWorld) -> None:
    sliced.plugin.alive = False
    switch(sliced)
    sliced.until(("Failed", "DevicePluginError"), seconds=70)

    message = sliced.gpu_status()["message"]
    assert "has not withdrawn its devices: it does not answer" in message
    assert "DaemonSet gpuplan-device-plugin on this node" in message
    assert message in sliced.condition("Ready")["message"]
    assert sliced.condition("Stalled")["status"] == "True"


def test_while_it_does_not_answer_the_node_is_open_and_stays_so(sliced: NvidiaWorld) -> None:
    sliced.plugin.alive = False
    switch(sliced)
    for _ in range(200):
        sliced.run(1.0)

    assert not any(effect.startswith("taint") for effect in sliced.effect.done)
    assert sliced.moves == []
    assert sliced.found() == ("Failed", "DevicePluginError")

    sliced.plugin.alive = True
    sliced.until(("Ready", "Confirmed"), seconds=120)


def test_a_config_that_cannot_be_written_is_reported(sliced: NvidiaWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("nodeagent.advertise.config_file.write_config", full)
    switch(sliced)
    sliced.until(("Failed", "DevicePluginError"), seconds=70)

    assert "No space left on device" in sliced.gpu_status()["message"]


def test_a_held_slice_is_waited_for_without_a_deadline(sliced: NvidiaWorld) -> None:
    held = next(device for device in sliced.plugin.config.devices if device.gpu == sliced.gpu(0).uuid)
    pod = sliced.pod_of_other_plugin(held.resource, held.id, held.id)
    switch(sliced)
    for _ in range(200):
        sliced.run(1.0)

    assert sliced.found() == ("WaitingForRelease", "WaitingForRelease")
    assert sliced.found(1) == ("Advertising", "WaitingForRelease")
    assert f"pod default/p1 holds {held.id}" in sliced.gpu_status(1)["message"]
    assert held in sliced.plugin.config.devices

    sliced.finish(pod)
    sliced.until(("Ready", "Confirmed"), seconds=120)
