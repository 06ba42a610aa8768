"""Our planner compared with nos': `python -m benchmarks.nos.baseline FILE [--json]`.

FILE holds workloads with what nos made of them (tests/benchmarks/data has a small one). Each is replayed as nos' was:
first the scheduler binds what fits, then plan, apply, bind, cycle by cycle. Prints nos' median run and ours; the
comparison is with its best. Exit code 1 where ours is behind: fewer pods placed after the same cycle, or, where equally
many are placed, more partitions destroyed. How many GPUs one plan cuts is printed and never judged.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.nos.workloads import NosRun, Raw, cluster_of, nos_runs, read_file, single_plan, title_of
from benchmarks.replay import BrokenError, Cost, applied, bound, first_fit
from controller.model.results import PlanningResult
from controller.model.snapshot import Snapshot
from controller.planning import plan

MOST_CYCLES = 8
PASSES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One replay: pods placed before any plan and after each cycle, and what each plan cost."""

    placed: tuple[int, ...]
    costs: tuple[Cost, ...]
    plan_ms: tuple[float, ...]

    @property
    def destroyed(self) -> int:
        return sum(cost.destroyed for cost in self.costs)

    def after(self, cycle: int) -> int:
        """A run that ended early stays where it was."""
        return self.placed[min(cycle, len(self.placed) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One workload; `behind` lists in which way ours is worse."""

    title: str
    pods: int
    ours: Run
    nos: tuple[NosRun, ...]
    single: Raw
    behind: tuple[str, ...]


def compare(workload: Raw) -> Compared:
    """Replay one workload and judge it; raises ValueError where it is malformed."""
    cluster = cluster_of(workload)
    nos = nos_runs(workload)
    cycles = max((len(run.placed) - 1 for run in nos), default=1)
    ours = replay(cluster, cycles=min(max(cycles, 1), MOST_CYCLES))
    single = single_plan(workload)
    return Compared(
        title=title_of(workload),
        pods=len(cluster.pending),
        ours=ours,
        nos=nos,
        single=single,
        behind=tuple(_behind(ours, nos)),
    )


def replay(cluster: Snapshot, *, cycles: int) -> Run:
    """Bind what fits, then plan, apply and bind; until every pod runs, nothing changes, or the cycles are over."""
    pods = len(cluster.pending)
    cluster = bound(cluster, first_fit(cluster))
    placed, plan_ms = [pods - len(cluster.pending)], []
    costs: list[Cost] = []
    while cluster.pending and len(costs) < cycles:
        result, milliseconds = _timed_plan(cluster)
        plan_ms.append(milliseconds)
        cluster, cost = applied(cluster, result)
        cluster = bound(cluster, {one.uid: one.node for one in result.placed})
        costs.append(cost)
        placed.append(pods - len(cluster.pending))
        if not result.placed:
            break
    return Run(placed=tuple(placed), costs=tuple(costs), plan_ms=tuple(plan_ms))


def _timed_plan(cluster: Snapshot) -> tuple[PlanningResult, float]:
    """The fastest of some equal passes: the first one fills tables that a controller keeps."""
    best_ms = float("inf")
    for _ in range(PASSES):
        began = time.perf_counter()
        result = plan(cluster)
        best_ms = min(best_ms, (time.perf_counter() - began) * 1000)
    return result, best_ms


def _behind(ours: Run, nos: Sequence[NosRun]) -> Iterable[str]:
    for cycle in range(1, max((len(run.placed) for run in nos), default=1)):
        best = max(run.after(cycle) for run in nos)
        if ours.after(cycle) < best:
            yield f"{ours.after(cycle)} pods placed after cycle {cycle}, nos {best}"
    alike = [run.destroyed for run in nos if run.placed[-1] == ours.placed[-1] and run.destroyed is not None]
    if alike and ours.destroyed > min(alike):
        yield f"{ours.destroyed} partitions destroyed, nos {min(alike)}"


def _median(values: Sequence[int]) -> int | None:
    return sorted(values)[len(values) // 2] if values else None


def document(compared: Compared) -> dict[str, Any]:
    """What --json prints of one workload."""
    ours, single = compared.ours, compared.single
    run = sorted(compared.nos, key=lambda one: one.placed)[len(compared.nos) // 2] if compared.nos else None
    return {
        "title": compared.title,
        "pods": compared.pods,
        "ours": {
            "placed": list(ours.placed),
            "gpus_recut": [cost.gpus for cost in ours.costs],
            "nodes_changed": [cost.nodes for cost in ours.costs],
            "destroyed": ours.destroyed,
            "milliseconds": [round(ms, 2) for ms in ours.plan_ms],
        },
        "nos": {
            "placed": list(run.placed) if run else None,
            "gpus_recut": single.get("gpus_changed"),
            "nodes_changed": single.get("nodes_changed"),
            "destroyed": _median([one.destroyed for one in compared.nos if one.destroyed is not None]),
            "milliseconds": single.get("plan_ms"),
        },
        "behind": list(compared.behind),
    }


def _lines(found: Raw) -> Iterable[str]:
    """One workload for people."""
    if found.get("not_run"):
        yield f"{found['title']}: not run: {found['not_run']}"
        return
    yield f"{found['title']} ({found['pods']} pods)" if "pods" in found else found["title"]
    for who in ("ours", "nos") if "ours" in found else ():
        numbers = found[who]
        yield "  " + "  ".join(
            [
                f"{who:4}",
                f"placed {_spelled(numbers['placed']):24}",
                f"re-cut {_spelled(numbers['gpus_recut']):9}",
                f"destroyed {_spelled(numbers['destroyed']):5}",
                f"nodes {_spelled(numbers['nodes_changed']):7}",
                f"ms {_spelled(numbers['milliseconds'])}",
            ]
        )
    yield from (f"  BEHIND: {sentence}" for sentence in found["behind"])


def _spelled(value: Any) -> str:
    """Per cycle for ours; lowest to highest of many runs of one plan for nos, which is not deterministic."""
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        low, high = (f"{value[end]:.0f}" for end in ("Min", "Max"))
        return low if low == high else f"{low}-{high}"
    if isinstance(value, list):
        shortened = list(value)
        while len(shortened) > 2 and shortened[-1] == shortened[-2]:
            shortened.pop()
        stays = ["..."] if len(shortened) < len(value) else []
        return " ".join([*(f"{one:.0f}" for one in shortened), *stays]) or "-"
    return str(value)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.nos.baseline", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    try:
        workloads = read_file(arguments.file)
    except (OSError, ValueError) as error:
        print(f"{arguments.file}: cannot be read: {error}", file=sys.stderr)
        return 2
    documents = []
    for number, workload in enumerate(workloads):
        try:
            found = document(compare(workload))
        except ValueError as error:
            found = {"title": title_of(workload) or f"workload {number}", "not_run": str(error), "behind": []}
        except BrokenError as error:
            found = {"title": title_of(workload), "not_run": "", "behind": [f"a plan that cannot come true: {error}"]}
        documents.append(found)
        if not arguments.json:
            print(*_lines(found), sep="\n", flush=True)
    behind = [found["title"] for found in documents if found["behind"]]
    if arguments.json:
        print(json.dumps({"workloads": documents, "behind": behind}, indent=2))
    else:
        print(f"{len(documents)} workloads, ours is behind in {len(behind)}{': ' if behind else ''}{', '.join(behind)}")
    return 1 if behind else 0


if __name__ == "__main__":
    sys.exit(main())
