"""Daemons of several GPUs: one that hangs delays its own GPU only, and a container start waits within a bound."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nodeagent.device_plugin.mps_daemons import DaemonTiming, MpsDaemons
from tests.clock import Clock
from tests.nodeagent.device_plugin.devices import GPU_A, GPU_B
from tests.nodeagent.device_plugin.fake_kubelet import WAIT_SECONDS
from tests.waiting import eventually

HANGS = "hangs"
TWIN = f"{GPU_A[:13]}9999-2222-3333-444444444444"


@dataclass
class FakeControl:
    """Answers as set, or hangs until it is released. Fails the test where two calls are under way at once."""

    answers: dict[str, str | None] = field(default_factory=dict)  # by GPU; HANGS until another one is set
    has_clients: bool = False
    calls: list[str] = field(default_factory=list)
    together: int = 0
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def ensure(self, gpu: str) -> str | None:
        with self._changed:
            self.calls.append(gpu)
            self.together += 1
            assert self.together == 1
            self._changed.wait_for(lambda: self.answers.get(gpu) != HANGS)
            self.together -= 1
            return self.answers.get(gpu)

    def end(self) -> bool:
        self.calls.append("end")
        return not self.has_clients

    def answer(self, gpu: str, problem: str | None) -> None:
        with self._changed:
            self.answers[gpu] = problem
            self._changed.notify_all()


class World:
    def __init__(self, root: Path, timing: DaemonTiming) -> None:
        self.clock = Clock()
        self.controls: dict[str, FakeControl] = {}
        self.news = 0
        self.threads: list[threading.Thread] = []
        self.daemons = MpsDaemons(
            root, control=self._make, timing=timing, clock=self.clock, start=self._start, on_change=self._count
        )

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


Make = Callable[..., World]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    worlds: list[World] = []

    def world(*gpus: str, **timing: float) -> World:
        worlds.append(World(tmp_path, DaemonTiming(**timing)))  # type: ignore[arg-type]
        worlds[-1].daemons.claim(gpus)
        return worlds[-1]

    yield world
    for each in worlds:
        for control in each.controls.values():
            for gpu in list(control.answers):
                control.answer(gpu, None)
        each.join()


def test_a_gpu_is_unready_until_its_daemon_answered_a_check(make: Make) -> None:
    world = make(GPU_A)
    assert (set(world.daemons.unready()), world.daemons.problems()) == ({GPU_A}, {})
    world.tended()
    assert (set(world.daemons.unready()), world.daemons.problems(), world.news) == (set(), {}, 1)
    world.of(GPU_A).answer(GPU_A, "it is away")
    world.tended()
    assert world.daemons.unready() == set(), "no check is due"
    assert world.daemons.seconds_to_due() == 10.0
    world.clock.now += 10.0
    world.tended()
    assert (set(world.daemons.unready()), world.daemons.problems()) == ({GPU_A}, {GPU_A: "it is away"})


def test_a_daemon_that_hangs_delays_no_other_gpu(make: Make) -> None:
    world = make(GPU_A, GPU_B)
    world.of(GPU_A).answer(GPU_A, HANGS)
    world.daemons.tend()
    eventually(lambda: world.daemons.unready() == {GPU_A}, "one GPU without a daemon")
    assert world.daemons.confirm(GPU_B) is None
    world.clock.now += 10.0
    world.daemons.tend()
    eventually(lambda: len(world.of(GPU_B).calls) == 3, "three calls to the other daemon")
    assert world.of(GPU_A).calls == [GPU_A], "it is not asked again before it has answered"


def test_a_check_that_does_not_end_is_reported_in_words_that_stay_the_same(make: Make) -> None:
    world = make(GPU_A)
    world.tended()
    world.clock.now += 10.0
    world.of(GPU_A).answer(GPU_A, HANGS)
    world.daemons.tend()
    assert world.daemons.seconds_to_due() == 30.0
    world.clock.now += 29.0
    assert world.daemons.problems() == {}
    world.clock.now += 1.0
    first = world.daemons.problems()
    assert "has not ended for 30 s" in first[GPU_A]
    assert "kernel log" in first[GPU_A]
    assert world.daemons.unready() == {GPU_A}
    assert world.daemons.seconds_to_due() == float("inf"), "or the main loop would not rest"
    assert world.daemons.confirm(GPU_A) == first[GPU_A]
    world.clock.now += 500.0
    assert world.daemons.problems() == first

    world.of(GPU_A).answer(GPU_A, None)
    world.join()
    assert world.daemons.problems() == {}


def test_a_known_problem_is_returned_to_a_container_start_without_a_check(make: Make) -> None:
    world = make(GPU_A)
    world.of(GPU_A).answer(GPU_A, "it is away")
    world.tended()
    world.of(GPU_A).answer(GPU_A, HANGS)
    assert world.daemons.confirm(GPU_A) == "it is away"
    assert world.of(GPU_A).calls == [GPU_A]


def test_a_container_start_checks_a_daemon_that_answered_before(make: Make) -> None:
    """It may have died since, and a client without its daemon runs without limits."""
    world = make(GPU_A)
    world.tended()
    assert world.daemons.confirm(GPU_A) is None
    assert world.of(GPU_A).calls == [GPU_A, GPU_A]
    world.of(GPU_A).answer(GPU_A, "it cannot be started")
    assert world.daemons.confirm(GPU_A) == "it cannot be started"
    assert world.daemons.unready() == {GPU_A}


def test_a_container_start_waits_for_its_check_within_a_bound(make: Make) -> None:
    world = make(GPU_A, confirm_seconds=0.05)
    world.tended()
    world.of(GPU_A).answer(GPU_A, HANGS)
    assert world.daemons.confirm(GPU_A) == "its MPS control daemon has not answered for 0.05 s"


def test_a_check_that_hangs_makes_no_later_container_start_wait(make: Make) -> None:
    world = make(GPU_A, confirm_seconds=600.0, overdue_seconds=3600.0)
    world.tended()
    world.of(GPU_A).answer(GPU_A, HANGS)
    world.clock.now += 10.0
    world.daemons.tend()
    world.clock.now += 600.0
    answers: list[str | None] = []
    start = threading.Thread(target=lambda: answers.append(world.daemons.confirm(GPU_A)), daemon=True)
    start.start()
    start.join(WAIT_SECONDS)
    assert answers == ["its MPS control daemon has not answered for 600 s"]
    assert world.of(GPU_A).calls == [GPU_A, GPU_A]


def test_more_container_starts_than_may_wait_are_refused_at_once(make: Make) -> None:
    world = make(GPU_A, confirm_seconds=WAIT_SECONDS, waiting_containers=2)
    world.tended()
    world.of(GPU_A).answer(GPU_A, HANGS)
    answers: list[str | None] = []
    waiting = [threading.Thread(target=lambda: answers.append(world.daemons.confirm(GPU_A))) for _ in range(12)]
    for thread in waiting:
        thread.start()
    eventually(lambda: len(answers) == 10, "ten answers")
    assert set(answers) == {"2 containers wait for the check of its MPS control daemon already"}
    world.of(GPU_A).answer(GPU_A, None)
    for thread in waiting:
        thread.join(WAIT_SECONDS)
    assert answers[10:] == [None, None]
    assert world.of(GPU_A).calls == [GPU_A, GPU_A]


def test_daemons_that_no_gpu_needs_are_ended_once_they_have_no_clients(make: Make, tmp_path: Path) -> None:
    (tmp_path / GPU_B[:13] / "pipe").mkdir(parents=True)  # of an earlier process
    world = make(GPU_A)
    world.of(GPU_B).has_clients = True
    world.tended()
    assert (world.of(GPU_A).calls, world.of(GPU_B).calls) == ([GPU_A], ["end"])
    world.of(GPU_B).has_clients = False
    for _ in range(2):
        world.clock.now += 10.0
        world.tended()
    assert world.of(GPU_B).calls == ["end", "end"], "it has ended: nothing more to do"
    world.daemons.claim([GPU_A, GPU_B])
    assert world.daemons.unready() == {GPU_B}
    world.tended()
    assert world.daemons.unready() == set()


def test_a_check_that_ends_after_the_last_slice_went_does_not_count_for_later_slices(make: Make) -> None:
    world = make(GPU_A)
    world.of(GPU_A).answer(GPU_A, HANGS)
    world.daemons.tend()
    world.daemons.claim([])
    assert world.daemons.confirm(GPU_A) == "its slices are not in the config that is in force"
    world.of(GPU_A).answer(GPU_A, "it is away")
    world.join()
    world.tended()
    assert world.of(GPU_A).calls == [GPU_A, "end"]
    world.daemons.claim([GPU_A])
    assert (set(world.daemons.unready()), world.daemons.problems()) == ({GPU_A}, {})


def test_two_gpus_never_share_a_directory(make: Make) -> None:
    """The daemon that answers in that directory is the first GPU's, and none is started for the other one."""
    world = make(TWIN, GPU_A)
    first, second = sorted((TWIN, GPU_A))
    world.tended()
    shared = f"{second} and {first} would share one MPS directory"
    assert (world.daemons.problems(), set(world.daemons.unready())) == ({second: shared}, {second})
    assert (world.daemons.confirm(first), world.daemons.confirm(second)) == (None, shared)
    assert set(world.of(GPU_A).calls) == {first}
    world.daemons.claim([second])
    world.tended()
    assert world.daemons.confirm(second) is None


def test_a_check_that_raises_is_a_problem_and_is_repeated(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make(GPU_A)
    with monkeypatch.context() as broken:
        broken.setattr(FakeControl, "ensure", lambda *_: 1 // 0)
        world.tended()
    assert world.daemons.problems() == {
        GPU_A: "the check of its MPS control daemon failed: integer division or modulo by zero"
    }
    world.clock.now += 10.0
    world.tended()
    assert world.daemons.unready() == set()


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
    assert world.daemons.unready() == set()
