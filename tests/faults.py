"""Makes calls of the simulated driver fail with a code, in this process, as often and on which GPU a test says.

`install` puts the simulated driver beneath pynvml so that `inject` has an effect. Never changes the machine.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sandbox.driver.abi.handles import decode
from sandbox.driver.abi.library import Library
from sandbox.driver.abi.registry import Export
from sandbox.driver.install import install as install_library
from sandbox.driver.status import Status
from sandbox.driver.store import Store
from tests.quirks import Quirks

ALWAYS = -1


@dataclass(slots=True, kw_only=True)
class _Fault:
    function: str
    status: Status
    times: int
    gpu: str | None


_FAULTS: defaultdict[Path, list[_Fault]] = defaultdict(list)
"""By the state file of the machine."""


class FaultyLibrary(Library):
    """The first fault that matches a call is its answer."""

    quirks = Quirks()

    def call(self, export: Export, arguments: tuple[int | None, ...]) -> Status:
        """Fail, or do it."""
        for fault in _FAULTS[self.store.path]:
            if fault.function == export.function.__name__ and fault.times and self._is_on(fault.gpu, arguments):
                fault.times -= 1
                return fault.status
        arguments = self.quirks.asked(self.store, export, arguments)
        status = super().call(export, arguments)
        if status is Status.SUCCESS:
            self.quirks.answered(export, arguments)
        return status

    def _is_on(self, gpu: str | None, arguments: tuple[int | None, ...]) -> bool:
        """A function that fails on one GPU takes a handle of it first."""
        if gpu is None:
            return True
        return self.store.read()["gpus"][decode(arguments[0]).gpu]["uuid"] == gpu


def install(store: Store, quirks: Quirks | None = None) -> Callable[[], None]:
    """Returns the function that undoes it."""
    chosen = quirks or Quirks()
    undo_quirks = chosen.install()
    undo = install_library(store, type("QuirkyLibrary", (FaultyLibrary,), {"quirks": chosen}))

    def undo_both() -> None:
        undo()
        undo_quirks()

    return undo_both


def inject(
    path: Path, function: str, *, status: Status = Status.UNKNOWN, times: int = 1, gpu: str | None = None
) -> None:
    """Let a C function (`nvmlGpuInstanceDestroy`) fail. `times=ALWAYS` never ends."""
    _FAULTS[path].append(_Fault(function=function, status=status, times=times, gpu=gpu))


def clear(path: Path) -> None:
    """Let every function work again."""
    _FAULTS[path].clear()
