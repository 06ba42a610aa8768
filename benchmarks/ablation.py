"""What each phase of the planner is worth: `python -m benchmarks.ablation [--seed S] [--sets tiny,small,...]`.

Plans the same random clusters with all phases and with one of them switched off at a time, and prints for each: pods
placed, clusters that are worse (compared level by level, the highest first) and better, GPUs changed, idle partitions
destroyed, CPU seconds. Switches a phase off by replacing a function of the planner while a pass runs; nothing else does
that. The table of docs/decisions/0005-heuristics-instead-of-a-solver.md is made by it.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from benchmarks.families import FAMILIES, case
from benchmarks.instances import MIXES, instance
from controller.gc_pause import collector_paused
from controller.model.snapshot import Snapshot
from controller.planner import search, strategy, tries
from controller.planner.board.assignment import Assignment
from controller.planner.board.board import Board
from controller.planner.placement import admission
from controller.planner.placement.packing_check import PackingCheck
from controller.planner.placement.shares import GroupCapacity
from controller.planning import plan


def _all_of(board: Board, group: int, assignments: Sequence[Assignment], _: GroupCapacity) -> admission.Admitted:
    return admission.Admitted(members=list(assignments), others=[], packing=PackingCheck.of(board, group))


def _in_turn(
    assignments: Sequence[Assignment], capacities: Sequence[GroupCapacity], *_: object
) -> list[list[Assignment]]:
    found: list[list[Assignment]] = [[] for _ in capacities]
    for number, one in enumerate(assignments):
        if able := [group for group in one.groups if capacities[group].serves(one.demand)]:
            found[able[number % len(able)]].append(one)
    return found


Replaced = tuple[Any, str, object]
PHASES: Mapping[str, Sequence[Replaced]] = {
    "all phases": (),
    "changing places": ((strategy, "change_places", lambda *_: 0),),
    "exchange": ((strategy, "exchange", lambda *_: 0),),
    "the older first": ((search, "prefer_older", lambda *_: None),),
    "all levels in one go": (
        (strategy, "_place_together", lambda *_: None),
        (strategy, "upper_bound", lambda *_: -1),
    ),
    "choosing on counts": ((strategy, "admit", _all_of),),
    "balancing node groups": ((strategy, "split", _in_turn),),
    "nodes apart by size": ((search, "_scarce", lambda *_: False),),
    "making room in other groups": ((strategy, "make_room", lambda *_: None),),
    "more tries": ((tries, "_WORK", 0),),
}
CLUSTERS: Mapping[str, tuple[Sequence[tuple[int, int, int]], int, Sequence[str]]] = {
    "tiny": (((1, 4, 20), (2, 2, 16), (2, 8, 60), (3, 4, 45)), 6, sorted(MIXES)),
    "small": (((10, 8, 120), (10, 8, 200)), 3, sorted(MIXES)),
    "middle": (((100, 8, 1_200), (100, 8, 2_000)), 1, sorted(MIXES)),
    "large": (((1_000, 8, 16_000),), 1, ("plain", "tainted", "cpu", "priorities", "several")),
    "families": (((3, 4, 0), (10, 8, 0)), 2, tuple(FAMILIES)),
}
"""Per set: nodes, GPUs per node and pods; seeds of each; mixes. Of families as many pods as come by `_MORE`."""
_MORE = 0.3


def snapshots(name: str, seed: int) -> list[Snapshot]:
    if name == "families":
        sizes, seeds, families = CLUSTERS[name]
        return [
            case(FAMILIES[family], nodes=nodes, gpus=gpus, seed=one, more=_MORE).snapshot
            for family in families
            for nodes, gpus, _ in sizes
            for one in range(seed, seed + seeds)
        ]
    sizes, seeds, mixes = CLUSTERS[name]
    return [
        instance(nodes=nodes, gpus=gpus, pods=pods, seed=one, mix=MIXES[mix])
        for mix in mixes
        for nodes, gpus, pods in sizes
        for one in range(seed, seed + seeds)
    ]


@contextmanager
def without(replaced: Sequence[Replaced]) -> Iterator[None]:
    patches = [patch.object(where, name, value) for where, name, value in replaced]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()


@dataclass(slots=True)
class Measured:
    """What came out of one pass over each cluster."""

    levels: list[tuple[int, ...]] = field(default_factory=list)
    """Pods placed per priority level, the highest first."""
    changed: int = 0
    destroyed: int = 0
    seconds: float = 0.0


def measured(clusters: Sequence[Snapshot]) -> Measured:
    found = Measured()
    for snapshot in clusters:
        began = time.process_time()
        with collector_paused():
            result = plan(snapshot)
        found.seconds += time.process_time() - began
        uids = {one.uid for one in result.placed}
        placed = Counter(pod.priority for pod in snapshot.pending if pod.uid in uids)
        priorities = sorted({pod.priority for pod in snapshot.pending}, reverse=True)
        found.levels.append(tuple(placed[priority] for priority in priorities))
        found.changed += result.counts.gpus_changed
        found.destroyed += result.counts.partitions_destroyed
    return found


def main(argv: Sequence[str] | None = None, show: Callable[[str], object] = print) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.ablation", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sets", default=",".join(CLUSTERS))
    arguments = parser.parse_args(argv)
    for name in arguments.sets.split(","):
        clusters = snapshots(name, arguments.seed)
        every = measured(clusters)  # fills tables
        for phase, replaced in PHASES.items():
            with without(replaced):
                found = measured(clusters)
            pairs = list(zip(found.levels, every.levels, strict=True))
            worse, better = sum(now < then for now, then in pairs), sum(now > then for now, then in pairs)
            counts = (sum(map(sum, found.levels)), worse, better, found.changed, found.destroyed)
            show(f"| {name} | {phase} | {' | '.join(map(str, counts))} | {found.seconds:.2f} |")


if __name__ == "__main__":
    main()
