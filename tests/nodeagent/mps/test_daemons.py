"""Daemons of several GPUs: one that hangs delays its own GPU only, and each is reported as its checks found it."""

import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nodeagent.handover.mps_state import MpsDaemon
from nodeagent.mps.control import Check, Defaults
from nodeagent.mps.daemons import DaemonTiming, MpsDaemons
from tests.clock import Clock
from tests.nodeagent.device_plugin.devices import GPU_A, GPU_B
from tests.nodeagent.device_plugin.fake_kubelet import WAIT_SECONDS
from tests.waiting import eventually

HANGS = "hangs"
TWIN = f"{GPU_A[:13]}9999-2222-3333-444444444444"


@dataclass
class FakeControl:
    """Answers as set, or hangs until it is released. Fails the test where two calls are under way at once."""

    answers: dict[str, Check | str] = field(default_factory=dict)  # by GPU; HANGS until another one is set
    has_clients: bool = False
    calls: list[str] = field(default_factory=list)
    defaults: list[Defaults] = field(default_factory=list)
    together: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def ensure(self, gpu: str, defaults: Defaults) -> Check:
        with self._changed:
            self.calls.append(gpu)
            self.defaults.append(defaults)
            self.together += 1
            assert self.together == 1
            self._changed.wait_for(lambda: self.answers.get(gpu) != HANGS)
            self.together -= 1
            found = self.answers.get(gpu, Check())
            assert isinstance(found, Check)
            return found

    def end(self) -> bool:
        self.calls.append("end")
        return not self.has_clients

    def answer(self, gpu: str, check: Check | str = Check()) -> None:  # noqa: B008 - frozen
        with self._changed:
            self.answers[gpu] = check
            self._changed.notify_all()


class DaemonsWorld:
    def __init__(self, root: Path, timing: DaemonTiming) -> None:
        self.clock = Clock()
        self.controls: dict[str, FakeControl] = {}
        self.news = 0
        self.threads: list[threading.Thread] = []
        self.daemons = MpsDaemons(
            root, control=self._make, timing=timing, clock=self.clock, start=self._start, on_change=self._count
        )

    def claim(self, *gpus: str, memory_mib: int = 10240) -> None:
        self.daemons.claim(dict.fromkeys(gpus, Defaults(memory_mib=memory_mib)))

    def reported(self, gpu: str) -> MpsDaemon:
        (found,) = (daemon for daemon in self.daemons.state().daemons if daemon.gpu == gpu)
        return found

    def problems(self) -> dict[str, str]:
        return {daemon.gpu: daemon.problem for daemon in self.daemons.state().daemons if daemon.problem}

    def unready(self) -> set[str]:
        return {daemon.gpu for daemon in self.daemons.state().daemons if not daemon.ready}

    def of(self, gpu: str) -> FakeControl:
        return self.controls.setdefault(gpu[:13], FakeControl())

    def _make(self, directory: Path) -> FakeControl:
        return self.of(directory.name)

    def _count(self) -> None:
        self.news += 1

    def _start(self, work: Callable[[], None]) -> None:
        self.threads.append(threading.Thread(target=work))
        self.threads[-1].start()

    def tended(self) -> None:
        """Tend, and wait for all that ends."""
        self.daemons.tend()
        self.join()

    def join(self) -> None:
        for thread in self.threads:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()


Make = Callable[..., DaemonsWorld]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    worlds: list[DaemonsWorld] = []

    def world(*gpus: str, **timing: float) -> DaemonsWorld:
        worlds.append(DaemonsWorld(tmp_path, DaemonTiming(**timing)))
        worlds[-1].claim(*gpus)
        return worlds[-1]

    yield world
    for each in worlds:
        for control in each.controls.values():
            for gpu in list(control.answers):
                control.answer(gpu)
        each.join()


AWAY = Check(problem="it is away")


def test_a_gpu_is_unready_until_its_daemon_answered_a_check(make: Make) -> None:
    world = make(GPU_A)
    assert (world.unready(), world.problems()) == ({GPU_A}, {})
    world.tended()
    assert (world.unready(), world.problems(), world.news) == (set(), {}, 1)
    world.of(GPU_A).answer(GPU_A, AWAY)
    world.tended()
    assert world.unready() == set(), "no check is due"
    assert world.daemons.seconds_to_due() == 10.0
    world.clock.now += 10.0
    world.tended()
    assert (world.unready(), world.problems()) == ({GPU_A}, {GPU_A: "it is away"})


def test_a_daemon_that_hangs_delays_no_other_gpu(make: Make) -> None:
    world = make(GPU_A, GPU_B)
    world.of(GPU_A).answer(GPU_A, HANGS)
    world.daemons.tend()
    eventually(lambda: world.unready() == {GPU_A}, "one GPU without a daemon")
    world.clock.now += 10.0
    world.daemons.tend()
    eventually(lambda: len(world.of(GPU_B).calls) == 2, "two calls to the other daemon")
    assert world.of(GPU_A).calls == [GPU_A], "it is not called again before it has answered"


def test_a_check_that_does_not_end_is_reported_in_words_that_stay_the_same(make: Make) -> None:
    world = make(GPU_A)
    world.tended()
    world.clock.now += 10.0
    world.of(GPU_A).answer(GPU_A, HANGS)
    world.daemons.tend()
    assert world.daemons.seconds_to_due() == 60.0
    world.clock.now += 59.0
    assert world.problems() == {}
    world.clock.now += 1.0
    first = world.problems()
    assert "has not ended for 60 s" in first[GPU_A]
    assert "kernel log" in first[GPU_A]
    assert world.unready() == {GPU_A}
    assert world.daemons.seconds_to_due() == float("inf"), "or the main loop would not rest"
    world.clock.now += 500.0
    assert world.problems() == first

    world.of(GPU_A).answer(GPU_A)
    world.join()
    assert world.problems() == {}


def test_a_daemon_that_does_not_start_is_tried_again_after_longer_and_longer_pauses(make: Make) -> None:
    world = make(GPU_A)
    world.of(GPU_A).answer(GPU_A, Check(problem="it did not start", failed_start=True))
    pauses = []
    for _ in range(10):
        world.tended()
        pauses.append(world.daemons.seconds_to_due())
        world.clock.now += pauses[-1]
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 120.0, 120.0]
    world.of(GPU_A).answer(GPU_A)
    world.tended()
    assert world.daemons.seconds_to_due() == 10.0


def test_what_was_put_right_is_reported_for_some_time_and_counted(make: Make) -> None:
    world = make(GPU_A)
    world.of(GPU_A).answer(GPU_A, Check(alarms=("it was changed", "and again")))
    world.tended()
    world.of(GPU_A).answer(GPU_A)
    assert (world.reported(GPU_A).alarm, world.reported(GPU_A).alarms) == ("it was changed; and again", 2)
    world.clock.now += 599.0
    world.tended()
    assert world.reported(GPU_A).alarm
    world.clock.now += 1.0
    assert (world.reported(GPU_A).alarm, world.reported(GPU_A).alarms) == ("", 2)


def test_a_daemon_whose_process_is_gone_is_checked_at_once(make: Make) -> None:
    world = make(GPU_A)
    with subprocess.Popen(["sleep", "600"]) as process:
        world.of(GPU_A).answer(GPU_A, Check(pid=process.pid))
        world.tended()
        assert (world.reported(GPU_A).pid, world.daemons.seconds_to_due()) == (process.pid, 1.0)
        world.tended()
        assert world.of(GPU_A).calls == [GPU_A]
        process.kill()
    world.of(GPU_A).answer(GPU_A, HANGS)
    world.daemons.tend()
    assert world.unready() == {GPU_A}, "no container may start before it answers"
    world.of(GPU_A).answer(GPU_A)
    world.join()
    assert world.unready() == set()


def test_a_slice_that_is_larger_than_all_before_is_set_at_once(make: Make) -> None:
    world = make(GPU_A)
    world.tended()
    world.claim(GPU_A, memory_mib=20480)
    world.of(GPU_A).answer(GPU_A, HANGS)
    world.daemons.tend()
    world.claim(GPU_A, memory_mib=40960)  # while the check runs
    world.of(GPU_A).answer(GPU_A)
    world.join()
    world.tended()
    assert [defaults.memory_mib for defaults in world.of(GPU_A).defaults] == [10240, 20480, 40960]
    assert world.unready() == set()


def test_daemons_that_no_gpu_needs_are_ended_once_they_have_no_clients(make: Make, tmp_path: Path) -> None:
    (tmp_path / GPU_B[:13] / "pipe").mkdir(parents=True)  # of an earlier process
    world = make(GPU_A)
    world.of(GPU_B).has_clients = True
    world.tended()
    assert (world.of(GPU_A).calls, world.of(GPU_B).calls) == ([GPU_A], ["end"])
    assert world.daemons.state().leftover == (GPU_B[:13],)
    world.of(GPU_B).has_clients = False
    for _ in range(2):
        world.clock.now += 10.0
        world.tended()
    assert world.of(GPU_B).calls == ["end", "end"], "it has ended: nothing more to do"
    assert world.daemons.state().leftover == ()
    world.claim(GPU_A, GPU_B)
    assert world.unready() == {GPU_B}
    world.tended()
    assert world.unready() == set()


def test_a_check_that_ends_after_the_last_slice_went_does_not_count_for_later_slices(make: Make) -> None:
    world = make(GPU_A)
    world.of(GPU_A).answer(GPU_A, HANGS)
    world.daemons.tend()
    world.claim()
    world.of(GPU_A).answer(GPU_A, AWAY)
    world.join()
    world.tended()
    assert world.of(GPU_A).calls == [GPU_A, "end"]
    world.claim(GPU_A)
    assert (world.unready(), world.problems()) == ({GPU_A}, {})


def test_two_gpus_never_share_a_directory(make: Make) -> None:
    """The daemon that answers in that directory is the first GPU's, and none is started for the other one."""
    world = make(TWIN, GPU_A)
    first, second = sorted((TWIN, GPU_A))
    world.tended()
    shared = f"{second} and {first} would share one MPS directory"
    assert (world.problems(), world.unready()) == ({second: shared}, {second})
    assert set(world.of(GPU_A).calls) == {first}
    world.claim(second)
    world.tended()
    assert world.unready() == set()


def test_a_check_that_raises_is_a_problem_and_is_repeated(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make(GPU_A)
    with monkeypatch.context() as broken:
        broken.setattr(FakeControl, "ensure", lambda *_: 1 // 0)
        world.tended()
    assert world.problems() == {GPU_A: "the check of its MPS control daemon failed: integer division or modulo by zero"}
    world.clock.now += 10.0
    world.tended()
    assert world.unready() == set()


def test_without_a_thread_the_check_stays_due(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make(GPU_A)

    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError):
            world.daemons.tend()
    world.threads.clear()
    world.tended()
    assert world.unready() == set()
