"""Workloads with what nos' planner made of them -> clusters to plan, and nos' own figures.

Takes the file's values, returns snapshots and runs; whatever is malformed or names no real hardware is a ValueError
that names the field. What a workload leaves out is taken as nothing: no status is an uncut GPU, no runs of nos are no
comparison. Pure, but for reading the file.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.nos.cluster import Card, Server, card_model, pending_pod, server, snapshot
from benchmarks.nos.counts import slice_name, whole_number
from controller.api.pod_requests import amount
from controller.model.snapshot import Snapshot
from controller.model.views import PodView
from partitioning.resources import MigRequest, classify, profile_of_resource

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NosRun:
    """One recorded run of nos. `destroyed` is None where it was not counted."""

    placed: tuple[int, ...]
    destroyed: int | None

    def after(self, cycle: int) -> int:
        return self.placed[min(cycle, len(self.placed) - 1)]


def read_file(path: Path) -> list[Any]:
    """The workloads of a file."""
    content = json.loads(path.read_text(encoding="utf-8"))
    workloads = content.get("workloads") if isinstance(content, Mapping) else None
    if not isinstance(workloads, list):
        raise ValueError("an object with a list workloads is needed")
    return workloads


def title_of(workload: object) -> str:
    return str(workload.get("title") or "") if isinstance(workload, Mapping) else ""


def cluster_of(workload: object) -> Snapshot:
    """The snapshot that a workload describes."""
    if not isinstance(workload, Mapping):
        raise ValueError(f"{workload!r} is no workload")
    pods = [_pod(number, each, f"pods[{number}]") for number, each in enumerate(_list(workload, "pods"))]
    profiles = {profile_of_resource(resource) or "" for pod in pods for resource, _ in pod.gpu}
    kind = _kind(workload, pods)
    servers = [
        _server(each, kind, profiles, f"nodes[{number}]") for number, each in enumerate(_list(workload, "nodes"))
    ]
    names = sorted(one.node.name for one in servers)
    twice = next((name for name, other in pairwise(names) if name == other), None)
    if twice is not None:
        raise ValueError(f"nodes: two are called {twice}")
    return snapshot(servers, pods)


def nos_runs(workload: Raw) -> tuple[NosRun, ...]:
    """What nos reached cycle by cycle, run by run."""
    runs = []
    for number, run in enumerate(_list(workload, "nos_multi_cycle")):
        where = f"nos_multi_cycle[{number}]"
        counts = [whole_number(count, f"{where}: a count") for count in _list(_mapping(run, where), CYCLES)]
        if counts:
            destroyed = run.get("devices_destroyed")
            runs.append(
                NosRun(
                    placed=tuple(counts),
                    destroyed=None if destroyed is None else whole_number(destroyed, f"{where}.devices_destroyed"),
                )
            )
    return tuple(runs)


def single_plan(workload: Raw) -> Raw:
    """Figures of one plan of nos, each with its Min and Max over many runs; a bare number is both."""
    found: dict[str, Raw] = {}
    for name in ("pods_placeable", "gpus_changed", "nodes_changed", "plan_ms"):
        value = _mapping(workload.get("nos") or {}, "nos").get(name)
        spread = value if isinstance(value, Mapping) else {"Min": value, "Max": value}
        other = spread.get("Max", spread.get("Min", spread.get("Mean")))
        ends = [spread.get("Min", other), spread.get("Max", other)]
        if all(isinstance(end, int | float) for end in ends):
            found[name] = {**spread, "Min": ends[0], "Max": ends[1]}
        elif value is not None:
            raise ValueError(f"nos.{name} is {value!r}, numbers Min and Max are needed")
    return found


def slices_of(status: Mapping[str, Any]) -> tuple[dict[int, dict[str, int]], dict[int, dict[str, int]]]:
    """Keys `<GPU index>-<profile>-<used|free>` -> slices in use and idle ones, by GPU."""
    found: dict[str, dict[int, dict[str, int]]] = {"used": {}, "free": {}}
    for key, count in status.items():
        index, _, rest = str(key).partition("-")
        profile, _, state = rest.rpartition("-")
        if not index.isdecimal() or not profile or state not in found:
            raise ValueError(f"status: {key} is not understood: write 0-1g.5gb-used")
        found[state].setdefault(int(index), {})[slice_name(profile)] = whole_number(count, f"status: {key}")
    return found["used"], found["free"]


CYCLES = "placed_after_each_cycle"


def _kind(workload: Raw, pods: Sequence[PodView]) -> str:
    """`mig` or `mps`; where it is not given, what the pods request."""
    mig = any(isinstance(classify(resource), MigRequest) for pod in pods for resource, _ in pod.gpu)
    kind = workload.get("kind") or ("mig" if mig else "mps")
    if kind not in ("mig", "mps"):
        raise ValueError(f"kind is {kind!r}: write mig or mps")
    return str(kind)


def _pod(number: int, raw: object, where: str) -> PodView:
    pod = _mapping(raw, where)
    requests = _mapping(pod.get("req") or {}, f"{where}.req")
    return pending_pod(
        number,
        str(pod.get("name", f"pod-{number}")),
        {resource: amount(resource, quantity) for resource, quantity in requests.items()},
        priority=whole_number(pod.get("priority") or 0, f"{where}.priority"),
    )


def _server(raw: object, kind: str, profiles: Collection[str], where: str) -> Server:
    node = _mapping(raw, where)
    used, free = slices_of(_mapping(node.get("status") or {}, f"{where}.status"))
    there = {name for gpu in (*used.values(), *free.values()) for name in gpu}
    if not node.get("model"):
        raise ValueError(f"{where}.model is missing")
    model = card_model(str(node["model"]), {*profiles, *there})
    if node.get("memMiB"):
        model = replace(model, memory_mib=whole_number(node["memMiB"], f"{where}.memMiB"))
    count = whole_number(node.get("count", 1), f"{where}.count")
    beyond = max((*used, *free), default=-1)
    if beyond >= count:
        raise ValueError(f"{where}.status speaks of GPU {beyond}, there are {count}")
    cards = [
        Card(index=index, model=model, used=used.get(index, {}), free=free.get(index, {})) for index in range(count)
    ]
    return server(str(node.get("name", where)), kind, cards)


def _list(raw: Raw, field: str) -> list[Any]:
    value = raw.get(field)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ValueError(f"{field} is {value!r}, a list is needed")
    return value


def _mapping(value: object, where: str) -> Raw:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} is {value!r}, an object is needed")
    return value
