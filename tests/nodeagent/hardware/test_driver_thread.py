"""A driver whose calls hang: one GPU's never delays another GPU's, and no call is made on top of one that hangs."""

import threading
from collections import defaultdict
from collections.abc import Iterator

import pytest

from nodeagent.hardware.driver import (
    ComputeInstance,
    DriverGoneError,
    DriverReplacedError,
    DriverTimeoutError,
    GpuDriver,
    GpuInstance,
    GpuProcess,
    Health,
    MigMode,
    ObservedGpu,
    RefusedError,
)
from nodeagent.hardware.driver_thread import COOL_DOWN_SECONDS, Hanging, ThreadedDriver
from partitioning.layouts import Instance
from tests.clock import Clock
from tests.nodeagent.lanes import ended
from tests.waiting import SECONDS

PLACED = Instance(start=4, size=4, profile="3g.40gb")
GPUS = 3


class GatedDriver(GpuDriver):
    """Each GPU's calls, and the count, wait until their gate is open; all are open at first."""

    def __init__(self) -> None:
        self.gates: dict[int | str, threading.Event] = {}
        self.calls: defaultdict[int | str, list[str]] = defaultdict(list)
        self.running: defaultdict[int | str, int] = defaultdict(int)
        self.most_running: dict[int | str, int] = {}
        self.gone: DriverGoneError | None = None
        self.users: list[ThreadedDriver] = []

    def shut(self, of: int | str) -> None:
        self.gates[of] = threading.Event()

    def open(self, of: int | str) -> None:
        self.gates.pop(of).set()

    def version(self) -> str:
        return "580"

    def count(self) -> int:
        self._call("node", "count")
        return GPUS

    def observe_gpu(self, index: int) -> ObservedGpu:
        self._call(index, "observe")
        if self.gone is not None and index == 1:
            raise self.gone
        return ObservedGpu(index=index, uuid=f"GPU-{index}", name="H100", mig_mode=MigMode.ENABLED, health=Health.OK)

    def processes(self, gpu: ObservedGpu) -> tuple[GpuProcess, ...]:
        self._call(gpu.index, "processes")
        return (GpuProcess(pid=gpu.index),)

    def create_gpu_instance(self, gpu_uuid: str, placed: Instance) -> int:
        self._call(int(gpu_uuid[-1]), "create")
        return 7

    def create_compute_instance(self, gpu_uuid: str, gpu_instance: int) -> None:
        raise NotImplementedError

    def destroy_compute_instance(self, gpu_uuid: str, instance: GpuInstance, compute: ComputeInstance) -> None:
        raise NotImplementedError

    def destroy_gpu_instance(self, gpu_uuid: str, instance: GpuInstance) -> None:
        raise NotImplementedError

    def set_compute_mode(self, gpu_uuid: str, mode: int) -> None:
        raise NotImplementedError

    def release(self) -> None:
        self._call("node", "release")

    def _call(self, of: int | str, what: str) -> None:
        self.calls[of].append(what)
        self.running[of] += 1
        self.most_running[of] = max(self.most_running.get(of, 0), self.running[of])
        gate = self.gates.get(of)
        assert gate is None or gate.wait(SECONDS)
        self.running[of] -= 1


@pytest.fixture
def gated() -> Iterator[GatedDriver]:
    driver = GatedDriver()
    yield driver
    for gate in driver.gates.values():
        gate.set()
    for user in driver.users:
        ended(user)


def threaded(gated: GatedDriver, clock: Clock | None = None) -> ThreadedDriver:
    gated.users.append(ThreadedDriver(gated, timeout_seconds=0.2, clock=clock or Clock()))
    return gated.users[-1]


def problems(driver: ThreadedDriver) -> list[int]:
    return [gpu.index for gpu in driver.observe() if gpu.problem]


def returned(driver: ThreadedDriver, index: int) -> None:
    """Wait until the late call of a GPU has come back."""
    done = threading.Event()
    driver._lanes[index]._tasks.put(done.set)
    assert done.wait(SECONDS)


def test_a_gpu_that_hangs_is_reported_and_the_others_are_read(gated: GatedDriver) -> None:
    driver = threaded(gated)
    assert problems(driver) == []
    gated.shut(1)

    first, wedged, last = driver.observe()

    assert (first.problem, last.problem) == ("", "")
    assert "reading GPU 1: no answer from the driver in 0.2 s" in wedged.problem
    assert "Xid" in wedged.problem
    assert (wedged.uuid, wedged.name, wedged.instances, wedged.health) == ("GPU-1", "H100", (), Health.UNKNOWN)
    assert driver.hanging() is None, "the others can be worked on"


def test_a_gpu_that_hangs_is_not_called_again_and_costs_no_further_waiting(gated: GatedDriver) -> None:
    driver = threaded(gated)
    driver.observe()
    gated.shut(1)
    before = driver.observe()[1].problem
    asked = len(gated.calls[1])

    assert [driver.observe()[1].problem for _ in range(5)] == [before] * 5
    with pytest.raises(DriverTimeoutError):
        driver.processes(ObservedGpu(index=1, uuid="GPU-1"))
    with pytest.raises(DriverTimeoutError):
        driver.create_gpu_instance("GPU-1", PLACED)

    assert len(gated.calls[1]) == asked
    assert gated.most_running[1] == 1
    assert driver.create_gpu_instance("GPU-0", PLACED) == 7


def test_after_its_call_returned_a_gpu_rests_and_is_then_called_again(gated: GatedDriver) -> None:
    clock = Clock()
    driver = threaded(gated, clock)
    gated.shut(1)
    assert problems(driver) == [1]
    clock.now += 10 * COOL_DOWN_SECONDS
    assert problems(driver) == [1], "however long it takes"

    gated.open(1)
    returned(driver, 1)
    clock.now += COOL_DOWN_SECONDS - 1
    assert problems(driver) == [1]
    clock.now += 1
    assert problems(driver) == []


def test_a_change_that_hangs_stops_everything_on_its_gpu_only(gated: GatedDriver) -> None:
    driver = threaded(gated)
    driver.observe()
    gated.shut(2)

    with pytest.raises(DriverTimeoutError, match=r"creating 3g\.40gb at 4: no answer"):
        driver.create_gpu_instance("GPU-2", PLACED)

    assert problems(driver) == [2]
    assert driver.processes(ObservedGpu(index=0, uuid="GPU-0")) == (GpuProcess(pid=0),)
    assert not driver.close(), "the change may still take effect"


def test_several_gpus_that_hang_cost_one_deadline_together(gated: GatedDriver) -> None:
    """All calls are made before the first one is waited for."""
    driver = threaded(gated)
    for index in range(GPUS):
        gated.shut(index)

    gpus = driver.observe()

    assert all("no answer" in gpu.problem for gpu in gpus)
    assert [gated.calls[index] for index in range(GPUS)] == [["observe"]] * GPUS
    assert driver.hanging() is not None, "nothing can be worked on"


def test_a_count_that_hangs_is_given_up_and_is_tried_again_when_it_has_returned(gated: GatedDriver) -> None:
    clock = Clock()
    driver = threaded(gated, clock)
    gated.shut("node")
    with pytest.raises(DriverTimeoutError, match="counting the GPUs: no answer from the driver"):
        driver.observe()
    clock.now += 700
    assert driver.hanging() == Hanging(what="counting the GPUs", seconds=700)

    gated.open("node")
    done = threading.Event()
    driver._node._tasks.put(done.set)
    assert done.wait(SECONDS)
    assert len(driver.observe()) == GPUS
    assert driver.hanging() is None
    assert driver.close()


@pytest.mark.parametrize("kind", [DriverGoneError, DriverReplacedError])
def test_a_driver_that_goes_while_a_gpu_is_read_is_no_fault_of_that_gpu(
    gated: GatedDriver, kind: type[DriverGoneError]
) -> None:
    gated.gone = kind("reading GPU 1", "gone")

    with pytest.raises(kind):
        threaded(gated).observe()


def test_a_gpu_that_never_answered_has_no_uuid(gated: GatedDriver) -> None:
    gated.shut(0)

    assert [gpu.uuid for gpu in threaded(gated).observe()] == ["", "GPU-1", "GPU-2"]


def test_a_gpu_that_was_not_observed_is_not_changed(gated: GatedDriver) -> None:
    with pytest.raises(RefusedError, match="no GPU GPU-0 was observed"):
        threaded(gated).create_gpu_instance("GPU-0", PLACED)


def test_a_call_that_hangs_does_not_keep_the_process_alive(gated: GatedDriver) -> None:
    driver = threaded(gated)
    driver.observe()

    assert all(thread.daemon for thread in threading.enumerate() if thread.name.startswith("nvml"))


def test_driver_is_not_closed_under_a_call_that_hangs(gated: GatedDriver) -> None:
    driver = threaded(gated)
    gated.shut(1)
    assert problems(driver) == [1]

    with pytest.raises(DriverTimeoutError, match="reading GPU 1 has not returned"):
        driver.release()
    assert "release" not in gated.calls["node"]

    gated.open(1)
    returned(driver, 1)
    driver.release()
    assert "release" in gated.calls["node"]
