"""Compare the simulator with kube-scheduler's own verdicts: `python -m benchmarks.scheduler_verdicts FILE [--json]`.

FILE holds clusters as (gzipped) JSON: nodes, running pods, pending pods, namespaces and, where there are any, claims,
volumes, storage classes, services and workloads; the KubeSchedulerConfiguration in force; and per pending pod and node
what the scheduler's Filter plugins said: nothing, or the plugin's name and message.
Prints how many pairs agree, down to the plugin's name, and every pair that does not; exit code 1 if there is one.
Where a PreFilter decided before any node was looked at, it is enough that the simulator refuses, too.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from controller.parse import Unreadable, read_node, read_pod
from controller.parse_storage import (
    OF_PODS_OWN,
    read_claim,
    read_namespace,
    read_service,
    read_storage_class,
    read_volume,
    read_workload,
)
from controller.scheduler_config import read_profiles
from controller.scheduling import SchedulerProfiles, SchedulingContext
from controller.simulator import ClusterState, Misfit
from controller.views import NodeView, PodView

Json = dict[str, Any]
View = TypeVar("View")
FINISHED = ("Succeeded", "Failed")
_GZIP = b"\x1f\x8b"


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


def read_file(path: Path) -> list[Json]:
    """The clusters of a file, gzipped or not."""
    content = path.read_bytes()
    clusters = json.loads(gzip.decompress(content) if content.startswith(_GZIP) else content)
    if not isinstance(clusters, list):
        raise ValueError(f"{path}: a list of clusters is needed")
    return clusters


def compare(clusters: Sequence[Json]) -> Iterator[Pair]:
    """Every pair of a pending pod and a node."""
    for number, cluster in enumerate(clusters):
        nodes = [_node(raw) for raw in cluster["Nodes"]]
        state = ClusterState(
            nodes,
            [_pod(raw) for raw in cluster["Existing"] if (raw.get("status") or {}).get("phase") not in FINISHED],
            context=_context(cluster),
            profiles=_profiles(cluster.get("Config")),
        )
        pods = {pod.name: pod for pod in map(_pod, cluster["Pods"])}
        for name, row in cluster["Expected"].items():
            for node, expected in row.items():
                refusal = state.why_not(pods[name], node)
                yield Pair(cluster=number, pod=name, node=node, expected=tuple(expected or ()), found=_said(refusal))


def _said(refusal: Misfit | None) -> tuple[str, ...]:
    return () if refusal is None else (refusal.plugin, refusal.message)


def _reasons(verdict: tuple[str, ...]) -> list[str]:
    return sorted(verdict[1].split(", ")) if len(verdict) > 1 else []


def _profiles(config: str | Json | None) -> SchedulerProfiles:
    return read_profiles(config if isinstance(config, str) else json.dumps(config))


def _node(raw: Json) -> NodeView:
    metadata = {"uid": raw["metadata"]["name"], **raw["metadata"]}
    read_view = read_node({**raw, "metadata": metadata})
    if isinstance(read_view, Unreadable):
        raise ValueError(f"node {read_view.name}: {read_view.reason}")
    return read_view


def _pod(raw: Json) -> PodView:
    metadata = {"uid": raw["metadata"]["name"], **raw["metadata"]}
    read_view = read_pod({**raw, "metadata": metadata})
    if isinstance(read_view, Unreadable):
        raise ValueError(f"pod {read_view.name}: {read_view.reason}")
    return read_view


def _context(cluster: Json) -> SchedulingContext:
    """Kinds that a file does not hold were not there either."""
    volumes = _read(cluster, "PersistentVolumes", read_volume)
    classes = _read(cluster, "StorageClasses", read_storage_class)
    return SchedulingContext(
        namespaces={name: labels for (_, name), labels in _read(cluster, "Namespaces", read_namespace).items()},
        claims=_read(cluster, "PersistentVolumeClaims", read_claim),
        volumes={name: volume for (_, name), volume in volumes.items()},
        storage_classes={name: found for (_, name), found in classes.items()},
        services=_read(cluster, "Services", read_service),
        workloads={
            (kind, *key): selector
            for kind in OF_PODS_OWN
            for key, selector in _read(cluster, f"{kind}s", read_workload).items()
        },
    )


def _read(cluster: Json, field: str, read: Callable[[Json], View | Unreadable]) -> dict[tuple[str, str], View]:
    """The objects of one kind, by namespace and name."""
    found: dict[tuple[str, str], View] = {}
    for raw in cluster.get(field) or ():
        view = read(raw)
        if isinstance(view, Unreadable):
            raise ValueError(f"{field}: {view.name}: {view.reason}")
        found[raw["metadata"].get("namespace", ""), raw["metadata"]["name"]] = view
    return found


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
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"{arguments.file}: cannot be compared: {type(error).__name__}: {error}", file=sys.stderr)
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
