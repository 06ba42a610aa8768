"""Plans odd clusters: `python -m tests.controller.odd [CLUSTERS] [FIRST SEED]`, 10,000 from seed 0 by default.

Prints each thing that is wrong with its seed, and at the end how many clusters and pods there were, how many passes
raised an error, and the most that one pod and one pass cost. Exit code 1 where anything is wrong.
"""

import sys
import traceback

from tests.controller.odd.clusters import case, run


def main(clusters: int = 10_000, first: int = 0) -> int:
    pods = raised = wrong = swapped = 0
    most_of_pod = most_of_pass = 0
    for seed in range(first, first + clusters):
        try:
            one = case(seed)
            pods += len(one.with_odd.pending) + len(one.with_odd.pods)
            problems, cost = run(one)
        except Exception:  # noqa: BLE001  # printed, and the next cluster has its turn
            raised += 1
            print(f"seed {seed}: {traceback.format_exc()}", flush=True)
            continue
        wrong += bool(problems)
        if seed % 500 == 499:
            print(f"{seed + 1 - first} clusters", flush=True)
        print(*problems, sep="\n", end="\n" if problems else "", flush=True)
        most_of_pod = max(most_of_pod, *cost.by_pod.values(), 0)
        swapped += bool(cost.swapped)
        most_of_pass = max(most_of_pass, cost.by_pod.total())
    print(
        f"clusters {clusters}, pods {pods}, exceptions {raised}, clusters with a fault {wrong}, "
        f"with an ordinary pod in another's stead {swapped}, "
        f"most work of one pod {most_of_pod}, of one pass {most_of_pass}"
    )
    return int(bool(raised or wrong))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
