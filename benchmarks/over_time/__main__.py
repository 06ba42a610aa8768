"""Replay days of jobs in virtual time: `python -m benchmarks.over_time --jobs trace.csv --cluster nodes=4,gpus=4`.

Prints for each policy how long pods waited, how far the GPUs were used, and what was made and changed; with --json one
object per policy, one line each. JOBS is a CSV file with name,arrival_ms,profile,duration_ms[,priority], a pod list of
Alibaba's cluster-trace-gpu-v2023, or a workload that comes with it, with its load: {workloads}. `gpuplan` is
the product itself on the clock of the replay, with the settings of a controller. Exit code 2 where something given
cannot be used.
"""

import argparse
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.over_time.cluster import Cluster, Controller
from benchmarks.over_time.jobs import Job, Size, TraceError, read_jobs, read_size
from benchmarks.over_time.nos import NosRule
from benchmarks.over_time.product import Product
from benchmarks.over_time.report import combined, measured, table
from benchmarks.over_time.rules import RULES, SHARED_RULES, Rule
from benchmarks.over_time.timeline import Delays, Record
from benchmarks.over_time.workloads import MAKERS, Workload, make
from controller.config.settings import Settings, load_settings
from kube.settings import SettingsError

FIXED_WINDOW = "fixed window"
"""The product, but a pod that comes alone waits for its window as any other."""
CONTROLLERS: Mapping[str, Callable[[Cluster, Settings], Controller]] = {
    "gpuplan": Product,
    FIXED_WINDOW: partial(Product, early=False),
    "nos": NosRule,
}
POLICIES = ("gpuplan", *RULES, "nos")


def replay(
    policy: str,
    jobs: list[Job],
    size: Size,
    delays: Delays,
    *,
    settings: Settings,
    seed: int,
    horizon: float | None,
    measure: bool = False,
) -> Record:
    """One policy on one list of jobs; `seed` is the scheduler's."""
    jobs = [job for job in jobs if horizon is None or job.arrival <= horizon]
    if policy in RULES:
        return Rule(jobs, size, delays, policy).run(horizon)
    cluster = Cluster(jobs, size, delays, seed=seed)
    cluster.record.measures = measure
    cluster.controller = CONTROLLERS[policy](cluster, settings)
    return cluster.run(horizon)


def main(argv: Sequence[str] | None = None, show: Callable[[str], object] = print) -> int:
    arguments = _parser().parse_args(argv)
    try:
        size = read_size(arguments.cluster)
        policies = _policies(arguments.policy, size)
        seeds = _seeds(arguments.seeds)
        settings = load_settings(arguments.settings) if arguments.settings else Settings()
        loads = [_workload(arguments.jobs, size, seed) for seed in seeds]
        if arguments.horizon is not None and arguments.horizon <= min(load.jobs[0].arrival for load in loads):
            raise TraceError(f"--horizon: {arguments.horizon:g} s is before the first job comes")
    except (TraceError, SettingsError) as error:
        print(f"over_time: {error}", file=sys.stderr)
        return 2
    delays = Delays(
        create=arguments.create,
        delete=arguments.delete,
        tick=arguments.tick,
        write_allocatable=arguments.write_allocatable,
    )
    rows = []
    for policy in policies:
        records = [
            replay(
                policy,
                load.jobs,
                size,
                delays,
                settings=settings,
                seed=seed,
                horizon=load.horizon if arguments.horizon is None else arguments.horizon,
                measure=arguments.measure,
            )
            for seed, load in zip(seeds, loads, strict=True)
        ]
        seconds = sum(record.plan_seconds for record in records) if arguments.measure else None
        rows.append(combined(policy, seeds, [measured(record) for record in records], seconds))
        if arguments.json:
            show(json.dumps(rows[-1]))
    if not arguments.json:
        for line in table(rows):
            show(line)
    return 0


def _workload(given: str, size: Size, seed: int) -> Workload:
    return make(given, size, seed) or Workload(jobs=read_jobs(Path(given)))


def _policies(text: str, size: Size) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    there = ("gpuplan", *SHARED_RULES) if size.shared else POLICIES
    unknown = [name for name in names if name not in there]
    if unknown or len(set(names)) < len(names):
        raise TraceError(f"--policy: {text!r} is not understood: give some of {','.join(there)}, each once")
    return names


def _seeds(text: str) -> list[int]:
    try:
        seeds = [int(seed) for seed in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or len(set(seeds)) < len(seeds):
        raise TraceError(f"--seeds: {text!r} is not understood: write whole numbers such as 1,2,3, each once")
    return seeds


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def _parser() -> argparse.ArgumentParser:
    about = (__doc__ or "").format(workloads=", ".join(f"{name}:{load:g}" for name, (_, load) in MAKERS.items()))
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.over_time",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--jobs", required=True, metavar="JOBS", help="a file, or a workload such as steady:0.65")
    parser.add_argument("--cluster", default="nodes=4,gpus=4,model=H100-80GB", help="default: %(default)s")
    parser.add_argument("--policy", default="gpuplan,first-fit,best-fit", help=f"some of {','.join(POLICIES)}")
    parser.add_argument("--settings", type=Path, metavar="FILE", help="the settings of a controller; default: its own")
    parser.add_argument("--create", type=_seconds, default=0.6, help="seconds to make an instance")
    parser.add_argument("--delete", type=_seconds, default=0.4, help="seconds to destroy one")
    parser.add_argument("--tick", type=_seconds, default=10.0, help="seconds between two statuses of a kubelet")
    parser.add_argument("--write-allocatable", action="store_true", help="the agent writes the Node's counts")
    parser.add_argument("--horizon", type=_seconds, help="end the replay after so many seconds")
    parser.add_argument("--seeds", default="1", help="of the workload that comes with it, and of the scheduler")
    parser.add_argument("--measure", action="store_true", help="fill plan_seconds, which differs from run to run")
    parser.add_argument("--json", action="store_true", help="one object per policy, one line each")
    return parser


if __name__ == "__main__":
    sys.exit(main())
