"""Judge a change of the planner: `python -m benchmarks.judge FILE` before it, the same command after it.

Plans the random clusters of `benchmarks.ablation`. Where FILE does not exist it is written; where it does, its results
are compared with those of now, on the same seeds, and what is beyond the tolerance is printed: too few pods in a set or
in one level of one cluster, too many idle partitions destroyed. Exit code 1 if there is any. GPUs changed are printed
and never judged, since few of them in one pass cost waits later; nor are CPU seconds, which depend on the machine.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.ablation import CLUSTERS, Measured, measured, snapshots

FEWER_PODS, MORE_DESTROYED, FEW_DESTROYED = 0.003, 0.05, 3
"""Of a whole set; so many partitions always, since a small set destroys few."""
FEWER_IN_A_LEVEL, FEW_PODS = 0.01, 3
"""Of one priority level of one cluster, and always so many pods: one pod is much of a small cluster."""


def too_much(before: Measured, now: Measured) -> Iterator[str]:
    """What is beyond the tolerance, in sentences."""
    placed, places = _placed(now), _placed(before)
    if placed < places * (1 - FEWER_PODS):
        yield f"{places - placed} of {places} pods fewer: at most {FEWER_PODS:.1%} may be lost"
    if now.destroyed - before.destroyed > max(FEW_DESTROYED, before.destroyed * MORE_DESTROYED):
        gone = f"{now.destroyed} instead of {before.destroyed} idle partitions destroyed"
        yield f"{gone}: at most {MORE_DESTROYED:.0%} more may be"
    for number, (then, levels) in enumerate(zip(before.levels, now.levels, strict=True)):
        for level, (had, has) in enumerate(zip(then, levels, strict=True)):
            if had - has > max(FEW_PODS, had * FEWER_IN_A_LEVEL):
                yield f"cluster {number}, level {level}: {has} pods instead of {had}"


def _placed(found: Measured) -> int:
    return sum(map(sum, found.levels))


def main(argv: Sequence[str] | None = None, show: Callable[[str], object] = print) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.judge", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the file keeps it")
    parser.add_argument("--sets", default=",".join(CLUSTERS), help="of the first run; the file keeps them")
    arguments = parser.parse_args(argv)
    if not arguments.file.exists():
        found = {name: asdict(measured(snapshots(name, arguments.seed))) for name in arguments.sets.split(",")}
        arguments.file.write_text(json.dumps({"seed": arguments.seed, "sets": found}))
        show(f"written to {arguments.file}: run the same command again after the change")
        return 0
    stored = json.loads(arguments.file.read_text())
    return max(_compare(name, stored["seed"], before, show) for name, before in stored["sets"].items())


def _compare(name: str, seed: int, stored: Mapping[str, Any], show: Callable[[str], object]) -> int:
    before, now = Measured(**stored), measured(snapshots(name, seed))
    show(
        f"{name}: placed {_placed(before)} -> {_placed(now)}, changed {before.changed} -> {now.changed}, "
        f"destroyed {before.destroyed} -> {now.destroyed}, CPU s {before.seconds:.2f} -> {now.seconds:.2f}"
    )
    problems = list(too_much(before, now))
    for problem in problems:
        show(f"{name}: {problem}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
