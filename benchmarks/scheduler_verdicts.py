"""Compare the simulator with kube-scheduler's own verdicts: `python -m benchmarks.scheduler_verdicts FILE [--json]`.

FILE holds clusters as (gzipped) JSON: nodes, running pods, pending pods, namespaces and, where there are any, claims,
volumes, storage classes, services and workloads; the KubeSchedulerConfiguration in force; and per pending pod and node
what the scheduler's Filter plugins returned: nothing, or the plugin's name and message.
Prints how many pairs agree, down to the plugin's name, and every pair that does not; exit code 1 if there is one.
Where a PreFilter decided before any node was tried, it is enough that the simulator refuses, too.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.verdict_files import Json, read_cluster, read_file
from controller.simulator.cluster import ClusterState
from controller.simulator.verdicts import DoesNotFit


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One pending pod and one node; empty lists: it fits."""

    cluster: int
    pod: str
    node: str
    expected: tuple[str, ...]
    found: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        if not self.expected or not self.found:
            return not self.expected and not self.found
        return self.expected[0].startswith("PreFilter") or self.expected[0] == self.found[0]

    @property
    def same_words(self) -> bool:
        """Whether the messages give the same reasons; resources come in no fixed order."""
        return self.agrees and (len(self.expected) == 1 or _reasons(self.expected) == _reasons(self.found))


def compare(clusters: Sequence[Json]) -> Iterator[Pair]:
    """Every pair of a pending pod and a node."""
    for number, raw in enumerate(clusters):
        cluster = read_cluster(raw, f"clusters[{number}]")
        state = ClusterState(cluster.nodes, cluster.running, context=cluster.context, profiles=cluster.profiles)
        for name, row in cluster.expected.items():
            for node, expected in row.items():
                refusal = state.why_not(cluster.pending[name], node)
                yield Pair(cluster=number, pod=name, node=node, expected=expected, found=_said(refusal))


def _said(refusal: DoesNotFit | None) -> tuple[str, ...]:
    return () if refusal is None else (refusal.plugin, refusal.message)


def _reasons(verdict: tuple[str, ...]) -> list[str]:
    return sorted(verdict[1].split(", ")) if len(verdict) > 1 else []


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scheduler_verdicts", description=(__doc__ or "").split("\n", maxsplit=1)[0]
    )
    parser.add_argument("file", type=Path, help="recorded verdicts, as JSON or gzipped JSON")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args(argv)
    try:
        clusters = read_file(arguments.file)
        pairs = list(compare(clusters))
    except (OSError, ValueError) as error:
        print(f"{arguments.file}: cannot be compared: {error}", file=sys.stderr)
        return 2
    disagreements = [pair for pair in pairs if not pair.agrees]
    figures = {
        "clusters": len(clusters),
        "pairs": len(pairs),
        "agreeing": len(pairs) - len(disagreements),
        "same_words": sum(pair.same_words for pair in pairs),
    }
    if arguments.json:
        print(json.dumps({**figures, "disagreements": [asdict(pair) for pair in disagreements]}))
    else:
        for pair in disagreements:
            print(
                f"cluster {pair.cluster}, pod {pair.pod}, node {pair.node}: kube-scheduler {_shown(pair.expected)}, "
                f"the simulator {_shown(pair.found)}"
            )
        print("\n".join(f"{name:>12}  {value}" for name, value in figures.items()))
    return 1 if disagreements else 0


def _shown(verdict: tuple[str, ...]) -> str:
    return ": ".join(verdict) if verdict else "fits"


if __name__ == "__main__":
    sys.exit(main())
