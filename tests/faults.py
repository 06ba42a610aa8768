"""Makes calls of the simulated driver fail with a code, in this process, as often and on which GPU a test says.

`install` puts the simulated driver beneath pynvml so that `inject` has an effect. Never changes the machine.
"""

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.driver.abi.handles import decode
from sandbox.driver.abi.library import Library
from sandbox.driver.abi.registry import Export
from sandbox.driver.install import install as install_library
from sandbox.driver.status import Status
from sandbox.driver.store import Store
from tests.quirks import Quirks

ALWAYS = -1
MOST_SECONDS = 60.0
"""After which a call that hangs returns whatever the test does."""


@dataclass(slots=True, kw_only=True)
class _Fault:
    function: str
    status: Status
    times: int
    gpu: str | None
    gate: threading.Event | None = field(default=None)
    """The call returns once it is set."""


_FAULTS: defaultdict[Path, list[_Fault]] = defaultdict(list)
"""By the state file of the machine."""


class FaultyLibrary(Library):
    """The first fault that matches a call is its answer."""

    quirks = Quirks()

    def call(self, export: Export, arguments: tuple[int | None, ...]) -> Status:
        """Fail, or do it."""
        for fault in _FAULTS[self.store.path]:
            if fault.function == export.function.__name__ and fault.times and self._is_on(fault.gpu, export, arguments):
                fault.times -= 1
                if fault.gate is not None:
                    fault.gate.wait(MOST_SECONDS)
                    break
                return fault.status
        arguments = self.quirks.asked(self.store, export, arguments)
        status = super().call(export, arguments)
        if status is Status.SUCCESS:
            self.quirks.answered(export, arguments)
        return status

    def _is_on(self, gpu: str | None, export: Export, arguments: tuple[int | None, ...]) -> bool:
        """A function that fails on one GPU takes a handle of it first, or its index."""
        if gpu is None:
            return True
        first = arguments[0]
        index = first if export.function.__name__ == "nvmlDeviceGetHandleByIndex_v2" else decode(first).gpu
        return bool(self.store.read()["gpus"][index or 0]["uuid"] == gpu)


def install(
    store: Store, quirks: Quirks | None = None, place: Callable[..., Callable[[], None]] = install_library
) -> Callable[[], None]:
    """Returns the function that undoes it. `place` puts a library beneath the binding."""
    chosen = quirks or Quirks()
    undo_quirks = chosen.install()
    undo = place(store, type("QuirkyLibrary", (FaultyLibrary,), {"quirks": chosen}))

    def undo_both() -> None:
        undo()
        undo_quirks()

    return undo_both


def inject(
    path: Path, function: str, *, status: Status = Status.UNKNOWN, times: int = 1, gpu: str | None = None
) -> None:
    """Let a C function (`nvmlGpuInstanceDestroy`) fail. `times=ALWAYS` never ends."""
    _FAULTS[path].append(_Fault(function=function, status=status, times=times, gpu=gpu))


def hang(path: Path, function: str, *, gpu: str | None = None) -> threading.Event:
    """Let no call of a C function return until the event is set; it acts then."""
    gate = threading.Event()
    fault = _Fault(function=function, status=Status.SUCCESS, times=ALWAYS, gpu=gpu, gate=gate)
    _FAULTS[path].append(fault)
    return gate


def clear(path: Path) -> None:
    """Let every function work again."""
    _FAULTS[path].clear()
