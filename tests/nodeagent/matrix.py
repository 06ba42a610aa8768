"""What the kubelet is shown while a driver call fails: every call, every code, once, for a minute, for ever, hanging.

    python -m tests.nodeagent.matrix [--processes N]

Each cell is a node of its own, with one GPU that is cut and one that is whole, on which one call of the driver fails on
the first GPU or, where it is one of the node, for both. Read are the ids that the device plugin sends as healthy, pass
by pass, on a clock that only the cell moves. A cell is bad where something is on offer that could not serve, and counts
what was lost where a single bad answer costs a device, or where the capacity does. The exit code is 1 with any.
"""

import argparse
import logging
import multiprocessing
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from pathlib import Path
from threading import Event
from typing import Any

from sandbox.driver.compute_instances import mig_device_uuid, mig_devices
from sandbox.driver.machine import observe
from sandbox.driver.status import Status
from tests import faults
from tests.builders.models import H100
from tests.nodeagent.driver_calls import CALLS, CODES, FREE, GONE, LOST, MISSING, DriverCall, Kind
from tests.nodeagent.items import mig
from tests.nodeagent.lanes import ended
from tests.nodeagent.world import World

HALF_MINUTE, MINUTE, FIVE_MINUTES = 30.0, 60.0, 300.0
SLACK_SECONDS = 12.0
"""The call fails for a while before a pass makes it, and a fault is one after a second look only."""
LATE_SECONDS, NEVER_LATE_SECONDS = 1.0, 60.0
"""Real ones, after which a call counts as hanging: in a cell where one hangs, and on a busy machine in any other."""
HALVES = [("3g.40gb", 0), ("3g.40gb", 4)]


class Lasting(StrEnum):
    ONCE = "one call"
    MINUTE = "a minute"
    EVER = "for ever"
    HANGING = "hanging"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One node on which one call fails."""

    call: DriverCall
    lasting: Lasting
    code: Status | None
    """None where it hangs."""
    new_agent: bool
    """The agent starts while it fails."""

    @property
    def title(self) -> str:
        answer = self.code.name if self.code is not None else "no answer"
        return f"{self.call.symbol} {answer}, {self.lasting}{', new agent' if self.new_agent else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    cell: Cell
    unusable: int = 0
    """Passes after which something that could not serve was on offer."""
    lost: int = 0
    """Passes after which something that served was not on offer, or not in the Node's capacity."""


def cells(
    calls: Iterable[DriverCall] = CALLS,
    codes: Iterable[Status] = CODES,
    *,
    crossed: Callable[..., Iterable[tuple[Any, ...]]] = product,
) -> list[Cell]:
    """`crossed` says which cells of the table of one call; a call that hangs is one cell per agent in any."""
    codes = tuple(codes)
    found = []
    for call in calls:
        agents = (True,) if call.kept else (False, True)
        answers = crossed(codes, (Lasting.ONCE, Lasting.MINUTE, Lasting.EVER), agents)
        found += [Cell(call=call, lasting=long, code=code, new_agent=new) for code, long, new in answers]
        found += [Cell(call=call, lasting=Lasting.HANGING, code=None, new_agent=new) for new in agents]
    return found


def run(cell: Cell) -> Result:
    """The node of one cell from its first pass to its last one."""
    with tempfile.TemporaryDirectory() as folder, _node(Path(folder), hangs=cell.code is None) as world:
        return _Life(cell, world).run()


class _Life:
    def __init__(self, cell: Cell, world: World) -> None:
        self._cell, self._world = cell, world
        self._result = Result(cell=cell)
        self._gpu = world.gpu(1 if cell.call.whole else 0).uuid
        self._all = _shown(world)
        of_gpu = {device.id for device in world.plugin.config.devices if device.gpu == self._gpu}
        ends = self._ends_offer()
        self._doomed = (self._all if cell.call.defaults else self._all & of_gpu) if ends else frozenset()
        """What may not be on offer once the call has failed for long enough."""
        # Said of one GPU alone such a code is believed of the others too, once no more is heard of them.
        self._may_end = self._all if ends and cell.code in GONE else self._doomed

    def _ends_offer(self) -> bool:
        call, code = self._cell.call, self._cell.code
        if call.kind is not Kind.OPTIONAL:
            return call.kind is Kind.REQUIRED
        if code is None or code in GONE:
            return True
        if call.defaults:
            return False
        if code in LOST:
            return True
        return code not in MISSING and call.gives != FREE

    def run(self) -> Result:
        cell, world = self._cell, self._world
        if cell.call.kind is Kind.CHANGING:
            world.apply(mig(0, ("7g.80gb", 0)), {"index": 1, "mps": {"slices": [{"memoryGB": 10}]}})
        elif not cell.new_agent:
            # From here on readings are kept, so that the call is made once a minute.
            self._passes(HALF_MINUTE, served=True)
        gate = self._begin()
        if cell.new_agent:
            world.restart()
        if cell.lasting is Lasting.ONCE:
            # Long enough for the call to be made, however old the reading is.
            self._passes(MINUTE + SLACK_SECONDS if not cell.new_agent else SLACK_SECONDS, served=True)
        else:
            patience = FIVE_MINUTES if cell.lasting is Lasting.HANGING else MINUTE
            self._passes(patience + SLACK_SECONDS)
            if cell.lasting is not Lasting.MINUTE:
                self._passes(HALF_MINUTE, doomed=True)
                world.restart()
                self._passes(HALF_MINUTE, doomed=True)
        self._end(gate)
        return self._result

    def _begin(self) -> Event | None:
        cell, world = self._cell, self._world
        gpu = None if cell.call.defaults else self._gpu
        if cell.code is None:
            return faults.hang(world.machine, cell.call.symbol, gpu=gpu)
        times = 1 if cell.lasting is Lasting.ONCE else faults.ALWAYS
        faults.inject(world.machine, cell.call.symbol, status=cell.code, times=times, gpu=gpu)
        return None

    def _end(self, gate: Event | None) -> None:
        """The call works again: what was taken off comes back after ten good seconds, and no sooner."""
        faults.clear(self._world.machine)
        if gate is not None:
            gate.set()
        if self._cell.lasting is not Lasting.MINUTE:
            return
        self._passes(9.0, doomed=True)
        self._passes(HALF_MINUTE)
        self._count(lost=self._cell.call.kind is not Kind.CHANGING and _shown(self._world) != self._all)

    def _passes(self, seconds: float, *, doomed: bool = False, served: bool = False) -> None:
        """Passes for so long. `doomed`: nothing of what is doomed may be on offer after any; `served`: all must be."""
        world, changing = self._world, self._cell.call.kind is Kind.CHANGING
        until = world.clock.now + seconds
        while world.clock.now < until:
            world.step(max(min(world.pass_only(), until - world.clock.now), 0.1))
            shown = _shown(world)
            self._count(unusable=bool(shown - _existing(world)) or (doomed and bool(shown & self._doomed)))
            stays = self._all if served else self._all - self._may_end
            self._count(lost=not changing and not (stays <= shown and self._all <= _listed(world)))

    def _count(self, *, unusable: bool = False, lost: bool = False) -> None:
        before = self._result
        self._result = replace(before, unusable=before.unusable + unusable, lost=before.lost + lost)


@contextmanager
def _node(folder: Path, *, hangs: bool) -> Iterator[World]:
    """One GPU in two instances, and a whole one."""
    world = World(folder, [(H100, {"mig_enabled": True, "instances": HALVES}), (H100, {})])
    try:
        world.driver_timeout_seconds = LATE_SECONDS if hangs else NEVER_LATE_SECONDS
        world.restart()
        world.apply(mig(0, *HALVES), {"index": 1, "whole": {}})
        world.settle()
        assert len(_shown(world)) == len(HALVES) + 1
        yield world
    finally:
        for driver in world.threaded:
            ended(driver)
        world.undo()


def _shown(world: World) -> frozenset[str]:
    """What a pod could get: the healthy ids of the list that the plugin sends."""
    return frozenset(i for ids in world.plugin.advertised().values() for i in ids)


def _listed(world: World) -> frozenset[str]:
    """The Node's capacity."""
    return frozenset(i for ids in world.plugin.listed().values() for i in ids)


def _existing(world: World) -> set[str]:
    """What is there by the machine's own record, and MPS slices."""
    gpus = observe(world.machine)["gpus"]
    devices = {mig_device_uuid(gpu, *parts) for gpu in gpus for parts in mig_devices(gpu)}
    return devices | {gpu["uuid"] for gpu in gpus} | {i for i in _shown(world) if "::" in i}


def table(results: Iterable[Result]) -> list[str]:
    """One line for each call, in Markdown: cells in which something unusable was on offer, of all cells."""
    found = list(results)
    lines = [
        f"| call | kind | needed for | {' | '.join(Lasting)} | lost |",
        f"|---|---|---|{'---|' * len(Lasting)}---|",
    ]
    for call in dict.fromkeys(result.cell.call for result in found):
        mine = [result for result in found if result.cell.call == call]
        columns = []
        for lasting in Lasting:
            these = [result for result in mine if result.cell.lasting is lasting]
            columns.append(f"{sum(result.unusable > 0 for result in these)} of {len(these)}")
        lost = sum(result.lost > 0 for result in mine)
        lines.append(f"| `{call.symbol}` | {call.kind} | {call.gives} | {' | '.join(columns)} | {lost} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--call", action="append", help="the C function; all by default")
    args = parser.parse_args()
    wanted = cells([call for call in CALLS if not args.call or call.symbol in args.call])
    with multiprocessing.get_context("spawn").Pool(args.processes, logging.disable, (logging.ERROR,)) as pool:
        results = pool.map(run, wanted, chunksize=4)
    bad = [result for result in results if result.unusable or result.lost]
    print("\n".join(table(results)))
    print(f"\n{len(results)} cells; something unusable on offer: {sum(r.unusable > 0 for r in bad)}; lost: ", end="")
    print(sum(result.lost > 0 for result in bad))
    for result in bad:
        print(f"{result.cell.title}: unusable after {result.unusable} passes, lost after {result.lost}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
