"""Ours beside nos' own planner: `python -m benchmarks.nos_baseline FILE [--json]`.

FILE holds workloads with what nos made of them (tests/benchmarks/data has a small one). Each is replayed as nos' was:
first the scheduler binds what fits, then plan, apply, bind, cycle by cycle. Printed is nos' median run beside ours; the
comparison is with its best. Exit code 1 where ours is behind: fewer pods placed after the same cycle, or, where equally
many are placed, more partitions destroyed or more GPUs re-cut.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.nos_cluster import Card, ImpossibleError, Server, card_model, pending_pod, server, snapshot
from benchmarks.replay import Cost, applied, bound, first_fit
from controller.planner import plan
from controller.pod_requests import amount
from controller.views import PlanningResult, Snapshot
from partitioning.resources import profile_of_resource

MOST_CYCLES = 8
PASSES = 3
Raw = Mapping[str, Any]


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
class NosRun:
    placed: tuple[int, ...]
    destroyed: int

    def after(self, cycle: int) -> int:
        return self.placed[min(cycle, len(self.placed) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One workload; `behind` says in which way ours is worse."""

    title: str
    pods: int
    ours: Run
    nos: tuple[NosRun, ...]
    single: Raw
    behind: tuple[str, ...]


def compare(workload: Raw) -> Compared:
    """Replay one workload and judge it."""
    cluster = cluster_of(workload)
    nos = tuple(
        NosRun(placed=tuple(run["placed_after_each_cycle"]), destroyed=run["devices_destroyed"])
        for run in workload.get("nos_multi_cycle") or ()
    )
    cycles = max((len(run.placed) - 1 for run in nos), default=1)
    ours = replay(cluster, cycles=min(max(cycles, 1), MOST_CYCLES))
    single = workload.get("nos") or {}
    return Compared(
        title=workload["title"],
        pods=len(cluster.pending),
        ours=ours,
        nos=nos,
        single=single,
        behind=tuple(_behind(ours, nos, single)),
    )


def replay(cluster: Snapshot, *, cycles: int) -> Run:
    """Bind what fits, then plan, apply and bind; until everybody runs, nothing changes, or the cycles are over."""
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


# ------------------------------------------------------------------------------------------------ the file's form


def cluster_of(workload: Raw) -> Snapshot:
    """The snapshot that a workload describes; raises ImpossibleError where no hardware is like that."""
    asked = {profile_of_resource(resource) or "" for pod in workload["pods"] for resource in pod["req"]}
    servers = [_server(node, workload["kind"], asked) for node in workload["nodes"]]
    pods = [
        pending_pod(
            number,
            pod["name"],
            {resource: amount(resource, quantity) for resource, quantity in pod["req"].items()},
            priority=int(pod.get("priority", 0)),
        )
        for number, pod in enumerate(workload["pods"])
    ]
    return snapshot(servers, pods)


def _server(node: Raw, kind: str, asked: Collection[str]) -> Server:
    used, free = slices_of(node["status"])
    there = {name for gpu in (*used.values(), *free.values()) for name in gpu}
    model = card_model(node["model"], {*asked, *there})
    if node.get("memMiB"):
        model = replace(model, memory_mib=int(node["memMiB"]))
    cards = [
        Card(index=index, model=model, used=used.get(index, {}), free=free.get(index, {}))
        for index in range(int(node["count"]))
    ]
    return server(node["name"], kind, cards)


def slices_of(status: Mapping[str, int]) -> tuple[dict[int, dict[str, int]], dict[int, dict[str, int]]]:
    """Keys `<GPU index>-<profile>-<used|free>` -> slices in use and idle ones, by GPU."""
    found: dict[str, dict[int, dict[str, int]]] = {"used": {}, "free": {}}
    for key, count in status.items():
        index, _, rest = key.partition("-")
        profile, _, state = rest.rpartition("-")
        found[state].setdefault(int(index), {})[profile] = int(count)
    return found["used"], found["free"]


# ---------------------------------------------------------------------------------------------------- judgement


def _behind(ours: Run, nos: Sequence[NosRun], single: Raw) -> Iterable[str]:
    for cycle in range(1, max((len(run.placed) for run in nos), default=1)):
        best = max(run.after(cycle) for run in nos)
        if ours.after(cycle) < best:
            yield f"{ours.after(cycle)} pods placed after cycle {cycle}, nos {best}"
    alike = [run.destroyed for run in nos if run.placed[-1] == ours.placed[-1]]
    if alike and ours.destroyed > min(alike):
        yield f"{ours.destroyed} partitions destroyed, nos {min(alike)}"
    placeable, changed = single.get("pods_placeable"), single.get("gpus_changed")
    if placeable and changed and ours.costs and placeable["Max"] == ours.after(1):
        recut, fewest = ours.costs[0].gpus, changed["Min"]
        if recut > fewest:
            yield f"{recut} GPUs re-cut by the first plan, nos {fewest}"


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
            "destroyed": _median([one.destroyed for one in compared.nos]),
            "milliseconds": single.get("plan_ms"),
        },
        "behind": list(compared.behind),
    }


def _lines(found: Raw) -> Iterable[str]:
    """One workload for people."""
    yield f"{found['title']} ({found['pods']} pods)"
    for who in ("ours", "nos"):
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
        prog="python -m benchmarks.nos_baseline", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    documents = []
    for workload in json.loads(arguments.file.read_text(encoding="utf-8"))["workloads"]:
        try:
            found = document(compare(workload))
        except ImpossibleError as error:
            found = {"title": workload["title"], "not_run": str(error), "behind": []}
        documents.append(found)
        if not arguments.json:
            lines = [f"{found['title']}: not run: {found['not_run']}"] if "not_run" in found else _lines(found)
            print(*lines, sep="\n", flush=True)
    behind = [found["title"] for found in documents if found["behind"]]
    if arguments.json:
        print(json.dumps({"workloads": documents, "behind": behind}, indent=2))
    else:
        print(f"{len(documents)} workloads, ours is behind in {len(behind)}{': ' if behind else ''}{', '.join(behind)}")
    return 1 if behind else 0


if __name__ == "__main__":
    sys.exit(main())
