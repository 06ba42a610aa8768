"""One MPS control daemon per GPU that has slices: which of them answer, while none that hangs delays another.

`tend` starts what is due, a check of each GPU with slices and the end of each other daemon, in a thread per GPU, and
returns at once; `state` returns what the latest checks found. At most one thread works on a GPU, so a daemon that hangs
delays its own GPU only. A daemon that does not start is tried again after longer and longer pauses. Never ends a daemon
before the first `claim`, and never takes another GPU's daemon for the one of the GPU in question.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from nodeagent.handover.mps_client import mps_directory
from nodeagent.handover.mps_state import MpsDaemon, MpsState, is_running
from nodeagent.mps.control import Check, Defaults

log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0  # between two looks whether the processes of the daemons are there
NOW = float("-inf")
NEVER = float("inf")


class Control(Protocol):
    """What `MpsControl` does for one MPS directory; both calls may take long."""

    def ensure(self, gpu: str, defaults: Defaults) -> Check: ...

    def end(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonTiming:
    check_seconds: float = 10.0
    first_pause_seconds: float = 0.5  # after the first start that failed
    longest_pause_seconds: float = 120.0  # between two starts of a daemon that does not start
    overdue_seconds: float = 60.0  # longer than a check takes in which every command needs some seconds
    alarm_seconds: float = 600.0  # for which what happened is reported


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
    defaults: Defaults | None = None
    checked: bool = False  # since it was claimed for this GPU
    problem: str | None = None  # found by the latest check
    failed_starts: int = 0  # one after the other
    alarm: str = ""
    alarm_at: float = NOW
    alarms: int = 0
    pid: int = 0
    due: float = NOW
    ended: bool = False
    work: Work | None = None

    def claim(self, gpu: str | None, defaults: Defaults | None) -> None:
        if gpu != self.gpu:
            self.gpu, self.checked, self.problem, self.due = gpu, False, None, NOW
            self.failed_starts, self.alarm, self.ended, self.pid = 0, "", False, 0
        if defaults != self.defaults:
            self.defaults, self.due = defaults, NOW

    def note(self, check: Check, now: float) -> None:
        self.problem, self.checked, self.pid = check.problem, True, check.pid
        self.failed_starts = self.failed_starts + 1 if check.failed_start else 0
        self.alarms += len(check.alarms)
        if check.alarms:
            self.alarm, self.alarm_at = "; ".join(check.alarms), now


def _in_a_thread(work: Callable[[], None]) -> None:
    # A daemon thread: one that hangs in the kernel must not keep the process from ending.
    threading.Thread(target=work, name="mps", daemon=True).start()


class MpsDaemons:
    def __init__(
        self,
        mps_root: Path,
        *,
        control: Callable[[Path], Control],
        timing: DaemonTiming,
        on_change: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        start: Callable[[Callable[[], None]], None] = _in_a_thread,
    ) -> None:
        self._root, self._control, self._timing = mps_root, control, timing
        self._on_change, self._clock, self._start = on_change, clock, start
        self._lock = threading.Lock()
        self._twins: dict[str, str] = {}
        self._daemons: dict[Path, Daemon] = {}

    def claim(self, gpus: Mapping[str, Defaults]) -> None:
        """These GPUs have slices from now on: of those that would share a directory the first one gets it."""
        owners: dict[Path, str] = {}
        twins: dict[str, str] = {}
        for gpu in sorted(gpus):
            owner = owners.setdefault(mps_directory(self._root, gpu), gpu)
            if owner != gpu:
                twins[gpu] = f"{gpu} and {owner} would share one MPS directory"
        left = {pipe.parent for pipe in self._root.glob("*/pipe")}  # also by an earlier process
        with self._lock:
            self._twins = twins
            for directory in sorted(left | owners.keys() | self._daemons.keys()):
                if directory not in self._daemons:
                    self._daemons[directory] = Daemon(self._control(directory))
                claimed = owners.get(directory)
                self._daemons[directory].claim(claimed, gpus[claimed] if claimed is not None else None)

    def tend(self) -> None:
        """Start what is due, without a wait. A check is due as well where the daemon's process is gone."""
        with self._lock:
            for daemon in self._daemons.values():
                if daemon.pid and not is_running(daemon.pid):
                    daemon.pid, daemon.checked, daemon.due = 0, False, NOW
                if daemon.work is None and daemon.due <= self._clock():
                    self._begin(daemon)

    def seconds_to_due(self) -> float:
        """Until time alone brings something to do or to report."""
        now = self._clock()
        with self._lock:
            due = [max(daemon.due - now, 0.0) for daemon in self._daemons.values() if daemon.work is None]
            began = [daemon.work.began for daemon in self._daemons.values() if daemon.work is not None]
            watched = [LOOK_SECONDS] if any(daemon.pid for daemon in self._daemons.values()) else []
        overdue = [at + self._timing.overdue_seconds - now for at in began]
        return min((*due, *watched, *(seconds for seconds in overdue if seconds > 0)), default=NEVER)

    def state(self) -> MpsState:
        """What the latest checks found."""
        with self._lock:
            found = [self._report(daemon) for daemon in self._daemons.values() if daemon.gpu]
            twins = [MpsDaemon(gpu=gpu, ready=False, problem=why) for gpu, why in self._twins.items()]
            left = sorted(path.name for path, daemon in self._daemons.items() if not daemon.gpu and not daemon.ended)
        return MpsState(daemons=tuple(sorted([*found, *twins], key=lambda daemon: daemon.gpu)), leftover=tuple(left))

    def _report(self, daemon: Daemon) -> MpsDaemon:
        problem = self._problem(daemon) or ""
        recent = self._clock() - daemon.alarm_at < self._timing.alarm_seconds
        return MpsDaemon(
            gpu=daemon.gpu or "",
            ready=daemon.checked and not problem,
            problem=problem,
            alarm=daemon.alarm if recent else "",
            alarms=daemon.alarms,
            pid=daemon.pid,
        )

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
        check, ended, defaults = Check(), False, daemon.defaults
        try:
            if work.gpu is None or defaults is None:
                ended = daemon.control.end()
            else:
                check = daemon.control.ensure(work.gpu, defaults)
        except Exception as error:
            log.exception("starting or checking the MPS control daemon of %s failed", work.gpu or "no GPU")
            check = Check(problem=f"the check of its MPS control daemon failed: {error}")
        with self._lock:
            daemon.work = None
            if daemon.gpu == work.gpu:  # else it was claimed for another purpose meanwhile, which is due
                now = self._clock()
                if work.gpu is not None:
                    daemon.note(check, now)
                daemon.ended = ended
                daemon.due = NEVER if ended else now + self._pause_seconds(daemon)
                if daemon.defaults != defaults:
                    daemon.due = NOW
        self._on_change()

    def _pause_seconds(self, daemon: Daemon) -> float:
        """After a start that failed a short one, then twice as long each time.

        Short, since the server of a daemon that was killed keeps the directory locked until its clients have failed.
        """
        if not daemon.failed_starts:
            return self._timing.check_seconds
        longer = self._timing.first_pause_seconds * 2.0 ** min(daemon.failed_starts - 1, 10)
        return min(longer, self._timing.longest_pause_seconds)
