"""What the planner leaves out in clusters of every family: `python -m benchmarks.gaps [--seed S] [--sizes tiny,small]`.

Plans clusters of `benchmarks.families` and prints per family and size how many pods could be placed and how many are:
where all fit by construction, and (`tiny` and `small`) where more come than fit, against the exact bound per node,
level by level. `worst` is the most that one level of one cluster lacks; `over` counts clusters in which a level lacks
more than one per cent or two pods. CPU seconds are those of all clusters of the row, and how often that is the row of
`plain`.
"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.families import FAMILIES, Case, Family, case
from benchmarks.oracle import exact_levels
from controller.gc_pause import collector_paused
from controller.model.snapshot import Snapshot
from controller.planning import plan

PER_CENT, FEW = 0.01, 2
"""What a level may lack: the larger of the two."""
_MORE = 0.6
HEADER = "| family | size | clusters | possible | placed | gap | worst | over | CPU s | × plain |"


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    shapes: Sequence[tuple[int, int]]
    """Nodes, and GPUs per node."""
    seeds: int = 1
    most_pods: int | None = None
    exact: bool = False
    """Also with more pods than fit: the exact bound takes seconds per cluster."""


SIZES: Mapping[str, Size] = {
    "tiny": Size(shapes=((1, 1), (1, 8), (3, 4)), seeds=4, exact=True),
    "small": Size(shapes=((10, 8),), seeds=3, exact=True),
    "middle": Size(shapes=((100, 8),)),
    "large": Size(shapes=((1_000, 8),), most_pods=10_000),
}


@dataclass(slots=True)
class Row:
    clusters: int = 0
    possible: int = 0
    placed: int = 0
    worst: int = 0
    over: int = 0
    seconds: float = 0.0
    unsolved: int = 0

    def add(self, snapshot: Snapshot, possible: Sequence[int]) -> None:
        """`possible` per priority, the highest first."""
        began = time.process_time()
        with collector_paused():
            result = plan(snapshot)
        self.seconds += time.process_time() - began
        priority = {pod.uid: pod.priority for pod in snapshot.pending}
        placed = Counter(priority[one.uid] for one in result.placed)
        levels = [placed[each] for each in sorted(set(priority.values()), reverse=True)]
        self.clusters += 1
        self.possible += sum(possible)
        self.placed += sum(levels)
        missing = [most - found for most, found in zip(possible, levels, strict=True)]
        self.worst = max([self.worst, *missing])
        self.over += any(lacks > max(FEW, most * PER_CENT) for most, lacks in zip(possible, missing, strict=True))


def rows(family: Family, size: Size, seed: int, seconds: float) -> Iterator[tuple[str, Row]]:
    """Where all fit, then where they do not."""
    for kind in ("fits", "more") if size.exact and not family.decided_by_pods else ("fits",):
        found = Row()
        for nodes, gpus in size.shapes:
            for one in range(seed, seed + size.seeds):
                more = _MORE if kind == "more" else 0.0
                made = case(family, nodes=nodes, gpus=gpus, seed=one, more=more, most_pods=size.most_pods)
                possible = _possible(made, exact=kind == "more", seconds=seconds)
                if possible is None:
                    found.unsolved += 1
                else:
                    found.add(made.snapshot, possible)
        yield kind, found


def _possible(made: Case, *, exact: bool, seconds: float) -> Sequence[int] | None:
    """Per priority of the pods that there are."""
    if exact and made.judged is not None:
        return exact_levels(made.judged, seconds=seconds)
    levels = Counter(pod.priority for pod in made.snapshot.pending if pod.uid in made.places)
    return [levels[each] for each in sorted(levels, reverse=True)]


def main(argv: Sequence[str] | None = None, show: Callable[[str], object] = print) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gaps", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("--seed", type=int, default=1, help="the first one of each size")
    parser.add_argument("--sizes", default=",".join(SIZES))
    parser.add_argument("--families", default=";".join(FAMILIES), help="separated by semicolons")
    parser.add_argument("--seconds", type=float, default=20.0, help="for one exact bound")
    arguments = parser.parse_args(argv)
    show(HEADER)
    show("|---|---|" + "---:|" * 8)
    for size in arguments.sizes.split(","):
        base: dict[str, float] = {}
        for name in ["plain", *(each for each in arguments.families.split(";") if each != "plain")]:
            for kind, row in rows(FAMILIES[name], SIZES[size], arguments.seed, arguments.seconds):
                each = row.seconds / max(1, row.clusters)
                show(_line(name, f"{size}, {kind}", row, each / base.setdefault(kind, each or 1)))


def _line(name: str, size: str, row: Row, times: float) -> str:
    gap = 1 - row.placed / row.possible if row.possible else 0.0
    clusters = f"{row.clusters}" + (f" ({row.unsolved} unsolved)" if row.unsolved else "")
    counts = f"{clusters} | {row.possible:,} | {row.placed:,} | {gap:.2%} | {row.worst} | {row.over}"
    return f"| {name} | {size} | {counts} | {row.seconds:.2f} | {times:.1f} |"


if __name__ == "__main__":
    main()
