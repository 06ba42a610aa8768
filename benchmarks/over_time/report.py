"""Sums up what became of the jobs: waits per profile, use of the GPUs, what was made; over several seeds.

Takes records, returns values for JSON and lines for people. Numbers of several seeds are means, with the least and the
greatest. A job that was not started counts with its wait until the replay ended.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.over_time.timeline import Record

Json = dict[str, Any]
COUNTED = ("n", "jobs")
"""The same in all seeds, or no measurement."""


def measured(record: Record) -> Json:
    """One replay."""
    jobs = record.jobs
    begin = min(job.arrival for job in jobs)
    waits: dict[str, list[float]] = {"all": []}
    for number, job in enumerate(jobs):
        wait = max(0.0, record.started.get(number, record.ended_at) - job.arrival)
        waits["all"].append(wait)
        waits.setdefault(job.profile, []).append(wait)
    last = record.last_end
    return {
        "jobs": len(jobs),
        "unfinished": sum(_end(record, number) > record.ended_at for number in range(len(jobs))),
        "wait": {name: _summary(waits[name]) for name in ("all", *sorted(waits.keys() - {"all"}))},
        "gpc_use": _use(record, begin, record.ended_at),
        "gpc_use_while_jobs_arrive": _use(record, begin, min(record.ended_at, max(job.arrival for job in jobs))),
        "makespan_s": round(max(0.0, last - begin), 1),
        "instances_created": record.created,
        "instances_deleted": record.deleted,
        "gpus_changed": record.gpus_changed,
        "passes": record.passes,
    }


def _end(record: Record, number: int) -> float:
    start = record.started.get(number)
    return math.inf if start is None else start + record.jobs[number].duration


def _summary(waits: Sequence[float]) -> Json:
    ordered = sorted(waits)
    found: Json = {"n": len(ordered), "mean": round(math.fsum(ordered) / len(ordered), 2)}
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        found[name] = round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)
    return {**found, "max": round(ordered[-1], 2)}


def _use(record: Record, begin: float, until: float) -> float:
    """The share of all compute slices, or of the memory of shared GPUs, that jobs had until then."""
    slices = record.size.weights
    had = math.fsum(
        slices[record.jobs[number].profile] * max(0.0, min(_end(record, number), until) - start)
        for number, start in record.started.items()
    )
    span = until - begin
    return round(had / (record.size.capacity * span), 4) if span > 0 else 0.0


def combined(policy: str, seeds: Sequence[int], found: Sequence[Json], seconds: float | None) -> Json:
    """What is printed of one policy; `seconds`: of CPU for planning, where it was measured."""
    means = _each(found, lambda values: round(math.fsum(values) / len(values), 4))
    return {
        "policy": policy,
        **means,
        "plan_seconds": seconds,
        "seeds": list(seeds),
        "least": _each(found, min),
        "greatest": _each(found, max),
    }


def _each(found: Sequence[Any], of: Callable[[Sequence[float]], float]) -> Any:
    if isinstance(found[0], Mapping):
        names = dict.fromkeys(name for one in found for name in one)
        return {name: _each([one[name] for one in found if name in one], of) for name in names}
    value = of(found)
    return int(value) if value == int(value) and all(isinstance(one, int) for one in found) else value


def table(rows: Sequence[Json]) -> Iterator[str]:
    """For people; where there are several seeds, least and greatest are in brackets."""
    head = ("policy", "mean wait s", "p50", "p99", "max", "GPC use", "made", "deleted", "GPUs changed", "passes")
    yield f"| {' | '.join(head)} |"
    yield "|---|" + "---:|" * (len(head) - 1)
    for row in rows:
        paths = [("wait", "all", name) for name in ("mean", "p50", "p99", "max")]
        counts = ("gpc_use", "instances_created", "instances_deleted", "gpus_changed", "passes")
        cells = [_cell(row, path) for path in [*paths, *((name,) for name in counts)]]
        yield f"| {row['policy']} | {' | '.join(cells)} |"
    yield ""
    profiles = [name for name in rows[0]["wait"] if name != "all"]
    yield f"| mean wait s (longest) | {' | '.join(f'{name} ({_n(rows, name)})' for name in profiles)} | unfinished |"
    yield "|---|" + "---:|" * (len(profiles) + 1)
    for row in rows:
        cells = [f"{_cell(row, ('wait', name, 'mean'))}; {row['wait'][name]['max']:,.0f}" for name in profiles]
        yield f"| {row['policy']} | {' | '.join(cells)} | {row['unfinished']:g} |"


def _n(rows: Sequence[Json], profile: str) -> str:
    return f"{rows[0]['wait'][profile]['n']:,.0f}"


def _cell(row: Json, path: Sequence[str]) -> str:
    value, least, greatest = (_at(row, *start, *path) for start in ((), ("least",), ("greatest",)))
    spread = f" [{_short(least)}, {_short(greatest)}]" if len(row["seeds"]) > 1 and greatest > 0 else ""
    return _short(value) + spread


def _at(row: Json, *path: str) -> float:
    found: Any = row
    for name in path:
        found = found[name]
    return float(found)


def _short(value: float) -> str:
    if value and abs(value) < 1:
        return f"{value:.3f}"
    return f"{value:.1f}" if abs(value) < 100 and value != int(value) else f"{value:,.0f}"
