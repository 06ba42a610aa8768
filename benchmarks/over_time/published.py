"""Tables and picture of docs/performance.md: `python -m benchmarks.over_time.published --measure`, then `--write`.

`--measure` replays every workload with every policy over six seeds and keeps the figures in docs/pictures/waits.json;
it takes half an hour. `--write` renews the tables and the picture from that file,
`--check` fails where one is stale. Losses stand there as wins do: nothing is left out.
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.over_time.__main__ import FIXED_WINDOW, POLICIES, replay
from benchmarks.over_time.jobs import read_size
from benchmarks.over_time.picture import svg
from benchmarks.over_time.report import combined, measured
from benchmarks.over_time.rules import SHARED_RULES
from benchmarks.over_time.timeline import Delays
from benchmarks.over_time.workloads import make
from controller.config.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"
FIGURES, PICTURE, PAGE = DOCS / "pictures/waits.json", DOCS / "pictures/waits.svg", DOCS / "performance.md"
UNDRAINED = "no draining"
"""The product with `drains: 0`."""
COUNTED = "counts written"
"""The product where the agents write the counts of the Nodes; all others wait for the status tick."""
VARIANTS = (UNDRAINED, FIXED_WINDOW, COUNTED)
PUBLISHED = ("gpuplan", *VARIANTS, *POLICIES[1:])
MARKS = ("waits", "rules")
SEEDS = (1, 2, 3, 4, 5, 6)
T95 = 2.571
"""Student's t of 95 % for as many pairs."""
Json = dict[str, Any]


class Case(NamedTuple):
    jobs: str
    cluster: str
    title: str


_8, _16 = "nodes=2,gpus=4,model=H100-80GB", "nodes=4,gpus=4,model=H100-80GB"
CASES = (
    Case("trickle", _8, "trickle, 8 H100"),
    Case("trickle", f"{_8},partitioning=mps", "trickle, 8 H100 shared by MPS"),
    Case("steady:0.5", _16, "steady, 50 %, 16 H100"),
    Case("steady:0.65", _16, "steady, 65 %, 16 H100"),
    Case("steady:0.8", _16, "steady, 80 %, 16 H100"),
    Case("steady:0.8", "nodes=3,gpus=4,model=A100-40GB", "steady, 80 %, 12 A100-40GB"),
    Case("steady:0.95", _16, "steady, 95 %, 16 H100"),
    Case("bursts", _16, "bursts, 16 H100"),
    Case("migbench:0.9", _8, "MIGBench, 0.9, 8 H100"),
    Case("migbench:1.4", _8, "MIGBench, 1.4, 8 H100"),
    Case("turning", _8, "backlog whose mix turns, 8 H100"),
    Case("stuck", _8, "one that can never run in front, 8 H100"),
)


def policies_of(case: Case) -> Sequence[str]:
    return ("gpuplan", *VARIANTS, *SHARED_RULES) if read_size(case.cluster).shared else PUBLISHED


def figures(case: Case, policy: str, seeds: Sequence[int]) -> Json:
    """What the page says of one policy. The pod that can never run is left out of what the others wait."""
    size, found = read_size(case.cluster), []
    settings = Settings(drains=0) if policy == UNDRAINED else Settings()
    delays = Delays(write_allocatable=policy == COUNTED)
    played = "gpuplan" if policy in (UNDRAINED, COUNTED) else policy
    for seed in seeds:
        workload = make(case.jobs, size, seed)
        assert workload is not None
        jobs, horizon = workload.jobs, workload.horizon
        record = replay(played, jobs, size, delays, settings=settings, seed=seed, horizon=horizon)
        found.append(measured(record))
    largest = max((name for name in found[0]["wait"] if name != "all"), key=lambda name: size.weights[name])
    stuck = case.jobs == "stuck"
    for one in found if stuck else ():
        one["wait"]["all"] = _without(one["wait"], largest)
    row = combined(policy, seeds, found, None)
    wait = row["wait"]
    return {
        "policy": policy,
        "mean": wait["all"]["mean"],
        "least": row["least"]["wait"]["all"]["mean"],
        "greatest": row["greatest"]["wait"]["all"]["mean"],
        "largest": None if stuck else wait[largest]["mean"],
        "longest": wait["all"]["max"],
        "use": row["gpc_use_while_jobs_arrive"],
        "use_to_the_end": row["gpc_use"],
        "made": row["instances_created"],
        "gpus": row["gpus_changed"],
        "means": [one["wait"]["all"]["mean"] for one in found],
        "maxima": [one["wait"]["all"]["max"] for one in found],
    }


def _without(wait: Mapping[str, Json], profile: str) -> Json:
    others = [one for name, one in wait.items() if name not in ("all", profile)]
    mean = sum(one["n"] * one["mean"] for one in others) / sum(one["n"] for one in others)
    return {"mean": round(mean, 2), "max": max(one["max"] for one in others)}


def table(rows: Mapping[str, Sequence[Json]]) -> Iterator[str]:
    """`rows` by workload."""
    yield "| workload | policy | mean wait s | largest profile | longest | GPC use | to the end | made | changed |\n"
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|\n"
    for case in CASES:
        for number, row in enumerate(rows[case.title]):
            name = f"**{row['policy']}**" if row["policy"] == "gpuplan" else row["policy"]
            cells = [
                "" if number else case.title,
                name,
                f"{_short(row['mean'])} [{_short(row['least'])}, {_short(row['greatest'])}]",
                "–" if row["largest"] is None else _short(row["largest"]),
                f"{row['longest']:,.0f}",
                f"{row['use']:.3f}",
                f"{row['use_to_the_end']:.3f}",
                f"{row['made']:,.0f}",
                f"{row['gpus']:,.0f}",
            ]
            yield f"| {' | '.join(cells)} |\n"


def worth(rows: Mapping[str, Sequence[Json]]) -> Iterator[str]:
    """What each rule is worth: the waits with it, less those without it on the same seeds."""
    yield "| workload | draining: mean wait s | longest | at once: mean | longest | counts written: mean | longest |\n"
    yield "|---|---:|---:|---:|---:|---:|---:|\n"
    for case in CASES:
        found = {row["policy"]: row for row in rows[case.title]}
        pairs = [(UNDRAINED, "gpuplan"), (FIXED_WINDOW, "gpuplan"), ("gpuplan", COUNTED)]
        cells = [
            _difference(found[without][key], found[having][key])
            for without, having in pairs
            for key in ("means", "maxima")
        ]
        yield f"| {' | '.join([case.title, *cells])} |\n"


def _difference(without: Sequence[float], having: Sequence[float]) -> str:
    each = [after - before for before, after in zip(without, having, strict=True)]
    half = T95 * statistics.stdev(each) / math.sqrt(len(each))
    return f"{statistics.fmean(each):+,.1f} ± {half:,.1f}" if any(each) else "the same"


def _short(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def documents() -> Mapping[Path, str]:
    """Picture and page as the figures have them."""
    rows = json.loads(FIGURES.read_text())
    page = PAGE.read_text()
    for mark, lines in zip(MARKS, (table(rows), worth(rows)), strict=True):
        begin, end = f"<!-- {mark}: begin -->\n", f"<!-- {mark}: end -->\n"
        before, rest = page.split(begin)
        _, after = rest.split(end)
        page = "".join([before, begin, *lines, end, after])
    return {PICTURE: svg({case.title: rows[case.title] for case in CASES}), PAGE: page}


def measure(policies: Sequence[str]) -> None:
    """Renew the figures of these policies, and keep those of others."""
    rows = json.loads(FIGURES.read_text()) if FIGURES.exists() else {}
    for case in CASES:
        known = {row["policy"]: row for row in rows.get(case.title, ())}
        known.update({policy: figures(case, policy, SEEDS) for policy in policies_of(case) if policy in policies})
        rows[case.title] = [known[policy] for policy in policies_of(case) if policy in known]
        text = ",\n".join(
            f'"{title}": [\n' + ",\n".join(map(json.dumps, found)) + "\n]" for title, found in rows.items()
        )
        FIGURES.write_text(f"{{\n{text}\n}}\n")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.over_time.published", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--measure", nargs="*", choices=PUBLISHED, metavar="POLICY", help="all, or those that changed")
    choice.add_argument("--write", action="store_true")
    choice.add_argument("--check", action="store_true")
    arguments = parser.parse_args(argv)
    if arguments.measure is not None:
        measure(arguments.measure or PUBLISHED)
        return 0
    made = documents()
    stale = [path for path, text in made.items() if not path.is_file() or path.read_text() != text]
    for path in stale if arguments.write else ():
        path.write_text(made[path])
    if arguments.check and stale:
        names = ", ".join(path.name for path in stale)
        print(f"stale: {names}. Run `python -m benchmarks.over_time.published --write`", file=sys.stderr)
    return int(arguments.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
