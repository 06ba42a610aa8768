"""One MPS control daemon per GPU that has slices: which of them answer, while none that hangs delays another.

`tend` starts what is due, a check of each GPU with slices and the end of each other daemon, in a thread per GPU, and
returns at once; `problems` and `unready` return what the latest checks found. At most one thread works on a GPU, so a
daemon that hangs delays its own GPU only. `confirm`, before a container starts, waits for a check, within a bound.
Never ends a daemon before the first `claim`, and never takes another GPU's daemon for the one of the GPU in question.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from nodeagent.handover.mps_client import mps_directory

log = logging.getLogger(__name__)
NOW = float("-inf")
NEVER = float("inf")


class Control(Protocol):
    """What `MpsControl` does for one MPS directory; both calls may take long."""

    def ensure(self, gpu: str) -> str | None: ...

    def end(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonTiming:
    check_seconds: float = 10.0
    confirm_seconds: float = 3.0  # of a check under way, for which containers wait
    overdue_seconds: float = 30.0  # longer than the time limits of all commands of a check together
    waiting_containers: int = 8  # of one GPU


@dataclass(slots=True, eq=False)
class Work:
    """A thread that works on a daemon."""

    gpu: str | None  # to check; None: to end the daemon, which no GPU needs
    began: float


@dataclass(slots=True, eq=False)
class Daemon:
    """What is known of the daemon of one MPS directory."""

    control: Control
    gpu: str | None = None  # with slices, whose daemon this is
    checked: bool = False  # since it was claimed for this GPU
    problem: str | None = None  # found by the latest check
    due: float = NOW
    work: Work | None = None
    waiting: int = 0  # containers

    def claim(self, gpu: str | None) -> None:
        if gpu != self.gpu:
            self.gpu, self.checked, self.problem, self.due = gpu, False, None, NOW


def _in_a_thread(work: Callable[[], None]) -> None:
    # A daemon thread: one that hangs in the kernel must not keep the process from ending.
    threading.Thread(target=work, name="mps", daemon=True).start()


class MpsDaemons:
    def __init__(
        self,
        mps_root: Path,
        *,
        control: Callable[[Path], Control],
        timing: DaemonTiming | None = None,
        on_change: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        start: Callable[[Callable[[], None]], None] = _in_a_thread,
    ) -> None:
        self._root, self._control, self._timing = mps_root, control, timing or DaemonTiming()
        self._on_change, self._clock, self._start = on_change, clock, start
        self._changed = threading.Condition()
        self._twins: dict[str, str] = {}
        self._daemons: dict[Path, Daemon] = {}

    def claim(self, gpus: Collection[str]) -> None:
        """These GPUs have slices from now on: of those that would share a directory the first one gets it."""
        owners: dict[Path, str] = {}
        twins: dict[str, str] = {}
        for gpu in sorted(gpus):
            owner = owners.setdefault(mps_directory(self._root, gpu), gpu)
            if owner != gpu:
                twins[gpu] = f"{gpu} and {owner} would share one MPS directory"
        left = {pipe.parent for pipe in self._root.glob("*/pipe")}  # also by an earlier process
        with self._changed:
            self._twins = twins
            for directory in sorted(left | owners.keys() | self._daemons.keys()):
                if directory not in self._daemons:
                    self._daemons[directory] = Daemon(self._control(directory))
                self._daemons[directory].claim(owners.get(directory))

    def tend(self) -> None:
        """Start what is due, without a wait."""
        with self._changed:
            for daemon in self._daemons.values():
                if daemon.work is None and daemon.due <= self._clock():
                    self._begin(daemon)

    def seconds_to_due(self) -> float:
        """Until time alone brings something to do or to report."""
        now = self._clock()
        with self._changed:
            due = [max(daemon.due - now, 0.0) for daemon in self._daemons.values() if daemon.work is None]
            began = [daemon.work.began for daemon in self._daemons.values() if daemon.work is not None]
        overdue = [at + self._timing.overdue_seconds - now for at in began]
        return min((*due, *(seconds for seconds in overdue if seconds > 0)), default=NEVER)

    def problems(self) -> dict[str, str]:
        """The GPUs with slices whose daemon does not answer, with the reasons."""
        with self._changed:
            found = {daemon.gpu: self._problem(daemon) for daemon in self._daemons.values()}
            return {**{gpu: why for gpu, why in found.items() if gpu and why}, **self._twins}

    def unready(self) -> frozenset[str]:
        """The GPUs with slices whose daemon is not known to answer."""
        with self._changed:
            unchecked = {daemon.gpu for daemon in self._daemons.values() if daemon.gpu and not daemon.checked}
            return frozenset(unchecked.union(self.problems()))

    def confirm(self, gpu: str) -> str | None:
        """None if the GPU's daemon answers now, else the reason; a daemon that died is started.

        A known problem is returned at once, and the time in which containers wait for a check is bounded as a whole.
        """
        with self._changed:
            daemon = self._daemons.get(mps_directory(self._root, gpu))
            if gpu in self._twins:
                return self._twins[gpu]
            if daemon is None or daemon.gpu != gpu:
                return "its slices are not in the config that is in force"
            if (problem := self._problem(daemon)) is not None:
                return problem
            if daemon.waiting >= self._timing.waiting_containers:
                return f"{daemon.waiting} containers wait for the check of its MPS control daemon already"
            if daemon.work is None:
                self._begin(daemon)
            return self._wait(daemon)

    def _wait(self, daemon: Daemon) -> str | None:
        work = daemon.work
        if work is not None:
            end = work.began + self._timing.confirm_seconds
            daemon.waiting += 1
            self._changed.wait_for(lambda: daemon.work is not work, timeout=max(end - self._clock(), 0.0))
            daemon.waiting -= 1
            if daemon.work is work:
                return f"its MPS control daemon has not answered for {self._timing.confirm_seconds:g} s"
        return self._problem(daemon) if daemon.checked else "its MPS control daemon is checked next"

    def _problem(self, daemon: Daemon) -> str | None:
        seconds = self._timing.overdue_seconds
        if daemon.work is not None and self._clock() - daemon.work.began >= seconds:
            return (
                f"a check of its MPS control daemon has not ended for {seconds:g} s, as where the driver hangs: see "
                "the node's kernel log. The daemon is checked again when that check has ended"
            )
        return daemon.problem

    def _begin(self, daemon: Daemon) -> None:
        daemon.work = work = Work(gpu=daemon.gpu, began=self._clock())
        try:
            self._start(partial(self._do, daemon, work))
        except RuntimeError:  # no thread can be started
            daemon.work = None
            raise

    def _do(self, daemon: Daemon, work: Work) -> None:
        problem, ended = None, False
        try:
            if work.gpu is None:
                ended = daemon.control.end()
            else:
                problem = daemon.control.ensure(work.gpu)
        except Exception as error:
            log.exception("the MPS control daemon of %s", work.gpu or "no GPU")
            problem = f"the check of its MPS control daemon failed: {error}"
        with self._changed:
            daemon.work = None
            if daemon.gpu == work.gpu:  # else it was claimed for another purpose meanwhile, which is due
                daemon.checked, daemon.problem = work.gpu is not None, problem
                daemon.due = NEVER if ended else self._clock() + self._timing.check_seconds
            self._changed.notify_all()
        self._on_change()
