"""One GPU whose driver calls do not return: the rest of the node works on, and what was advertised stays."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pynvml
import pytest

from nodeagent.hardware.driver_thread import COOL_DOWN_SECONDS, ThreadedDriver
from sandbox.driver.status import Status
from tests import faults
from tests.nodeagent.conftest import MakeWorld, cut
from tests.nodeagent.hardware.machine import parent
from tests.nodeagent.items import mig
from tests.nodeagent.world import World
from tests.waiting import SECONDS

NVML: Any = pynvml
Wedge = Callable[[str, str], threading.Event]


@pytest.fixture
def wedge(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wedge]:
    """Calls of one NVML function for one GPU return only when the event is set."""
    made: list[threading.Event] = []

    def of(gpu_uuid: str, symbol: str) -> threading.Event:
        gate, real = threading.Event(), getattr(NVML, symbol)
        made.append(gate)

        def gated(handle: Any, *arguments: Any) -> Any:
            if NVML.nvmlDeviceGetUUID(parent(handle)) == gpu_uuid:
                gate.wait(60)
            return real(handle, *arguments)

        monkeypatch.setattr(NVML, symbol, gated)
        return gate

    yield of
    for gate in made:
        gate.set()


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    """Two H100s with an idle instance each; the agent's driver calls have a deadline."""
    found = make_world(cut(("3g.40gb", 0)), cut(("1g.10gb", 0)))
    found.driver_timeout_seconds = 0.3
    found.restart()
    found.apply(mig(0, ("3g.40gb", 0)), mig(1, ("1g.10gb", 0)))
    found.settle()
    return found


def release(world: World, gate: threading.Event, index: int) -> None:
    """Let the call return, and the pause after it pass. From then on a call may take long, as on a busy machine."""
    driver, done = world.agents_driver, threading.Event()
    assert isinstance(driver, ThreadedDriver)
    driver._timeout_seconds = 60
    gate.set()
    driver._lanes[index]._tasks.put(done.set)
    assert done.wait(SECONDS)
    world.clock.now += COOL_DOWN_SECONDS


def test_a_gpu_that_cannot_be_read_delays_no_other(world: World, wedge: Wedge) -> None:
    gate = wedge(world.gpu(0).uuid, "nvmlDeviceGetName")
    world.apply(mig(0, ("7g.80gb", 0)), mig(1, ("7g.80gb", 0)))

    world.settle()

    assert world.found(0) == ("Failed", "Unhealthy")
    assert "no answer from the driver in 0.3 s" in world.gpu_status(0)["message"]
    assert world.found(1) == ("Ready", "Confirmed")
    assert world.layout(1) == "7g.80gb at 0"
    assert world.advertised() == {"nvidia.com/mig-3g.40gb": 1, "nvidia.com/mig-7g.80gb": 1}
    healthy = world.condition("GPUsHealthy")
    assert (healthy["status"], healthy["reason"]) == ("False", "Unhealthy")
    assert healthy["message"].startswith("GPU 0: reading GPU 0: no answer from the driver")

    release(world, gate, 0)
    world.settle(20)
    assert world.found(0) == ("Ready", "Confirmed")
    assert world.advertised() == {"nvidia.com/mig-7g.80gb": 2}
    assert world.condition("GPUsHealthy")["status"] == "True"


def test_a_gpu_that_cannot_be_read_is_not_called_drifted(world: World, wedge: Wedge) -> None:
    wedge(world.gpu(0).uuid, "nvmlDeviceGetName")

    world.settle()

    assert world.found(0) == ("Failed", "Unhealthy")
    assert world.condition("Applied")["status"] == "False"
    assert world.condition("Drifted")["status"] == "False", "no change was observed"


def test_while_the_driver_does_not_answer_no_gpu_is_called_healthy(world: World) -> None:
    faults.inject(world.machine, "nvmlDeviceGetCount_v2", status=Status.UNKNOWN, times=faults.ALWAYS)

    world.settle()

    assert (world.condition("Ready")["status"], world.condition("Ready")["reason"]) == ("False", "DriverError")
    healthy = world.condition("GPUsHealthy")
    assert (healthy["status"], healthy["reason"]) == ("False", "DriverError")
    assert "counting the GPUs" in healthy["message"]
    assert world.condition("Drifted")["status"] == "False"


def test_what_a_wedged_gpu_advertised_stays_through_a_restart_of_the_agent(world: World, wedge: Wedge) -> None:
    wedge(world.gpu(0).uuid, "nvmlDeviceGetName")
    world.restart()
    world.apply(mig(0, ("3g.40gb", 0)), mig(1, ("4g.40gb", 0)))

    world.settle()

    assert world.found(1) == ("Ready", "Confirmed")
    assert world.advertised() == {"nvidia.com/mig-3g.40gb": 1, "nvidia.com/mig-4g.40gb": 1}


@pytest.mark.parametrize(
    "call", ["nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlDeviceGetComputeRunningProcesses_v3"]
)
def test_a_gpu_that_hangs_while_it_is_worked_on_delays_no_other(world: World, call: str) -> None:
    gate = faults.hang(world.machine, call, gpu=world.gpu(1).uuid)
    try:
        world.apply(mig(0, ("4g.40gb", 0)), mig(1, ("4g.40gb", 0)))

        world.settle()

        assert world.found(1) == ("Failed", "Unhealthy")
        assert world.found(0) == ("Ready", "Confirmed")
        assert world.layout(0) == "4g.40gb at 0"
        release(world, gate, 1)
        world.settle(20)
        assert world.found(1) == ("Ready", "Confirmed")
        assert world.layout(1) == "4g.40gb at 0"
    finally:
        gate.set()
