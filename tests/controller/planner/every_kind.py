"""Plans random clusters of every kind: `python -m tests.controller.planner.every_kind [CLUSTERS] [FIRST SEED]`.

Each cluster is of a family or a mix of the benchmarks, of 1 to 10 nodes with 1 to 8 GPUs, with as many pods as fit or
up to 60 % more. Its plan must keep every rule of `checker`, be the same for a copy of the snapshot, leave the pods that
it placed where they are once it is in force, and change nothing more where all pods were placed. Prints what is wrong
with its seed; exit code 1 where anything is.
"""

import pickle
import random
import sys
import traceback
from collections.abc import Iterator

from benchmarks.families import FAMILIES, case
from benchmarks.instances import MIXES, instance
from controller.model.results import Supply
from controller.model.snapshot import Snapshot
from controller.planning import plan
from tests.controller.planner.checker import check
from tests.controller.planner.world import applied, bound


def cluster(seed: int) -> Snapshot:
    rng = random.Random(seed)
    nodes, gpus, kind = rng.randint(1, 10), rng.randint(1, 8), rng.choice([*FAMILIES, *MIXES])
    if kind in FAMILIES:
        more = rng.choice((0.0, 0.3, 0.6))
        return case(FAMILIES[kind], nodes=nodes, gpus=gpus, seed=seed, more=more).snapshot
    return instance(nodes=nodes, gpus=gpus, pods=rng.randint(0, 3 * nodes * gpus), seed=seed, mix=MIXES[kind])


def faults(snapshot: Snapshot) -> Iterator[str]:
    result = plan(snapshot)
    check(snapshot, result)
    if repr(plan(pickle.loads(pickle.dumps(snapshot)))) != repr(result):
        yield "another plan for the same snapshot"
    if result.failures or result.pod_failures:
        yield f"failures: {result.failures or result.pod_failures}"
    priority = {pod.uid: pod.priority for pod in snapshot.pending}
    outranked = max((priority[one.uid] for one in result.unplaced), default=min(priority.values(), default=0))
    in_force = applied(snapshot, result)
    second = plan(in_force)
    check(in_force, second)
    at = {one.uid: (one.node, one.supply) for one in second.placed}
    for one in result.placed:
        # A pod of a lower level may give its place to one that was left out.
        if priority[one.uid] >= outranked and at.get(one.uid) != (one.node, Supply.EXISTING):
            yield f"{one.key} was placed on {one.node}, and is {at.get(one.uid, 'left out')} in the next pass"
    if not result.unplaced and second.node_changes:
        yield "a second pass changes something"
    satisfied = bound(in_force, result)
    last = plan(satisfied)
    check(satisfied, last)
    if not result.unplaced and last.node_changes:
        yield "a pass without pending pods changes something"


def main(clusters: int = 1_500, first: int = 0) -> int:
    pods = wrong = 0
    for seed in range(first, first + clusters):
        try:
            snapshot = cluster(seed)
            pods += len(snapshot.pending)
            found = list(faults(snapshot))
        except Exception:  # noqa: BLE001  # printed, and the next cluster has its turn
            found = [traceback.format_exc()]
        wrong += bool(found)
        for fault in found:
            print(f"seed {seed}: {fault}", flush=True)
    print(f"clusters {clusters}, pods {pods}, clusters with a fault {wrong}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
