"""What the supervisor of MPS control daemons has reported of each GPU, for the device plugin.

`refresh` reads its file once a pass; `confirm`, before a container starts, reads it again and answers at once, since
the kubelet waits. A supervisor that was just replaced, and one that is about to check a daemon that answered before,
are no reason to list slices as unhealthy: that comes after some patience. No container starts meanwhile, but a pod that
is bound to an unhealthy slice is rejected permanently. Never calls a daemon itself: none that hangs delays it.
"""

import time
from collections.abc import Callable, Collection
from dataclasses import replace

from nodeagent.handover.config import PluginFiles
from nodeagent.handover.files import Unreadable
from nodeagent.handover.mps_state import MpsDaemon, MpsState, is_running, read_mps

PATIENCE_SECONDS = 20.0
ABSENT = (
    "no supervisor of MPS control daemons runs on this node: see the pod of DaemonSet gpuplan-mps there, and whether "
    "the node has the label gpuplan.dev/mps-daemons, which the agent sets"
)
UNCHECKED = "its MPS control daemon is checked next"
ENDED = "its MPS control daemon has ended and is started again"


class MpsHealth:
    def __init__(
        self, files: PluginFiles, *, clock: Callable[[], float] = time.monotonic, patience_seconds: float
    ) -> None:
        self._files, self._clock, self._patience_seconds = files, clock, patience_seconds
        self._gpus: frozenset[str] = frozenset()
        self._found: dict[str, MpsDaemon] = {}
        self._unchecked_since: dict[str, float] = {}
        self._absent_since: float | None = None
        self._absent = ABSENT

    def claim(self, gpus: Collection[str]) -> None:
        """These GPUs have slices."""
        self._gpus = frozenset(gpus)

    def refresh(self) -> None:
        state = read_mps(self._files)
        if isinstance(state, MpsState):
            self._found = {daemon.gpu: self._judged(daemon) for daemon in state.daemons}
            self._absent_since = None
            return
        self._absent = str(state) if isinstance(state, Unreadable) else ABSENT
        if self._absent_since is None:
            self._absent_since = self._clock()

    def _judged(self, daemon: MpsDaemon) -> MpsDaemon:
        """The daemon as it was, while it is about to be checked."""
        if daemon.ready and not is_running(daemon.pid):
            # No container with its slices starts: a supervisor that hangs must not keep them on offer.
            daemon = replace(daemon, ready=False)
        before = self._found.get(daemon.gpu)
        if daemon.ready or daemon.problem or before is None or not before.ready:
            self._unchecked_since.pop(daemon.gpu, None)
            return daemon
        since = self._unchecked_since.setdefault(daemon.gpu, self._clock())
        return before if self._clock() - since < self._patience_seconds else daemon

    def unready(self) -> frozenset[str]:
        """The GPUs with slices whose daemon is not known to answer."""
        ready = {gpu for gpu in self._gpus if gpu in self._found and self._found[gpu].ready}
        return self._gpus if self._absence_counts() else self._gpus - ready

    def problems(self) -> dict[str, str]:
        """The GPUs with slices whose daemon does not answer, with the reasons."""
        if self._absence_counts():
            return dict.fromkeys(sorted(self._gpus), self._absent)
        found = {gpu: self._found[gpu].problem for gpu in sorted(self._gpus) if gpu in self._found}
        return {gpu: problem for gpu, problem in found.items() if problem}

    def seconds_to_due(self) -> float:
        """Until time alone changes an answer."""
        began = [*self._unchecked_since.values(), *(() if self._absent_since is None else (self._absent_since,))]
        left = (since + self._patience_seconds - self._clock() for since in began)
        return min((seconds for seconds in left if seconds > 0), default=float("inf"))

    def confirm(self, gpu: str) -> str | None:
        """None if the GPU's daemon answered the latest check, else the reason. From any thread."""
        state = read_mps(self._files)
        if isinstance(state, Unreadable):
            return str(state)
        if state is None:
            return ABSENT
        found = next((daemon for daemon in state.daemons if daemon.gpu == gpu), None)
        if found is None:
            return UNCHECKED
        if not found.ready:
            return found.problem or UNCHECKED
        # A client that finds no daemon runs without MPS, and so without any limit.
        return None if is_running(found.pid) else ENDED

    def _absence_counts(self) -> bool:
        since = self._absent_since
        return since is not None and self._clock() - since >= self._patience_seconds
