"""Measure one planning pass: `python -m benchmarks.planner --nodes N --gpus G --pods P --seed S [--mix M] [--json]`.

Prints how long the pass took (by the clock, and by the CPU time of its one thread, which a busy machine lengthens
less), how many pods it placed of how many that the exact bound allows (HiGHS, needs the
`benchmark` extra), how many GPUs it changed and idle partitions it destroyed, the peak memory of the process, and how
many pods each phase of the pass placed in how much time (of one more pass).
"""

import argparse
import json
import resource
import time
from collections.abc import Callable, Sequence

from benchmarks.instances import MIXES, instance
from benchmarks.oracle import exact_bound
from benchmarks.phases import Phases
from controller.gc_pause import collector_paused
from controller.planning import plan


def measure(*, nodes: int, gpus: int, pods: int, seed: int, mix: str, repeat: int, seconds: float) -> dict[str, object]:
    snapshot = instance(nodes=nodes, gpus=gpus, pods=pods, seed=seed, mix=MIXES[mix])
    best = cpu = float("inf")
    for _ in range(repeat):
        started, cpu_started = time.perf_counter(), time.process_time()
        with collector_paused():  # as the controller's loop does
            result = plan(snapshot)
        best = min(best, time.perf_counter() - started)
        cpu = min(cpu, time.process_time() - cpu_started)
    phases = Phases()
    plan(snapshot, on_phase=phases)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    bound = exact_bound(snapshot, seconds=seconds)
    placed = len(result.placed)
    return {
        "plan_seconds": round(best, 4),
        "cpu_seconds": round(cpu, 4),
        "placed": placed,
        "bound": bound.pods,
        "gap": round(1 - placed / bound.pods, 5) if bound.pods else 0.0,
        "own_bound": result.bound,
        "gpus_changed": result.counts.gpus_changed,
        "destroyed": result.counts.partitions_destroyed,
        "peak_mib": peak_mib,
        "placed_by_phase": {phase.value: count for phase, count in result.counts.placed_by},
        "seconds_by_phase": {phase: round(seconds, 4) for phase, seconds in phases.seconds.items()},
    }


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        found = int(text)
        if found < least:
            raise argparse.ArgumentTypeError(f"{found} is less than {least}")
        return found

    return number


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nodes", type=_at_least(1), default=10)
    parser.add_argument("--gpus", type=_at_least(1), default=8)
    parser.add_argument("--pods", type=_at_least(0), default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mix", choices=sorted(MIXES), default="plain")
    parser.add_argument(
        "--repeat", type=_at_least(1), default=3, help="passes; the fastest counts (the first fills tables)"
    )
    parser.add_argument("--oracle-seconds", type=float, default=60.0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(arguments)
    found = measure(
        nodes=args.nodes,
        gpus=args.gpus,
        pods=args.pods,
        seed=args.seed,
        mix=args.mix,
        repeat=args.repeat,
        seconds=args.oracle_seconds,
    )
    if args.json:
        print(json.dumps(found))
    else:
        print("\n".join(f"{name:>14}  {value}" for name, value in found.items()))


if __name__ == "__main__":
    main()
