"""What pods of one hostile user cost a pass: `python -m benchmarks.hostile [--bound N,M] [--rows PART] [--calls]`.

Plans a cluster of 100 nodes, 20 of which have 8 H100, with so many bound pods, and next to the hostile pods of each row
one ordinary pod that must have its place. Prints per row and number of bound pods the CPU seconds of the pass, what was
counted as its work, why it was cut short, if it was, and with `--calls` of one more pass the function calls that it
makes, which are the same on every machine. Exit code 1 where an ordinary pod has no place.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from unittest.mock import patch

from benchmarks.instances import MIXES, instance
from controller.gc_pause import collector_paused
from controller.model.scheduling import (
    HostPort,
    LabelSelector,
    NodeSelectorTerm,
    PodAffinityTerm,
    Requirement,
    SchedulingContext,
)
from controller.model.snapshot import Snapshot
from controller.model.views import NodeView, PodView
from controller.planner.effort import Effort
from controller.planning import plan

HOST = "kubernetes.io/hostname"
SLICE = "nvidia.com/mig-1g.10gb"
STORAGE, HUGE_PAGES = "ephemeral-storage", "hugepages-2Mi"
ROOM = {STORAGE: 1_000_000, HUGE_PAGES: 1_000_000}
"""For two of the pods that need them."""
_GIB = 2**30
_TEAMS = 20

Hostile = Callable[[], list[PodView]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    pods: Hostile
    nodes: int = 100
    serving: int = 20
    """Nodes with GPUs."""
    mix: str = "plain"
    crowded: bool = False
    """More of them come than fit, and the ordinary pod has a higher priority."""
    room: Mapping[str, int] = field(default_factory=dict)
    """Of which the nodes with GPUs have so much."""
    all_compared: bool = False
    """Terms that no index serves: the work grows with the bound pods, up to what a pod may cost."""


def pod(number: int, *, gpu: Mapping[str, int] | None = None, priority: int = 0, cpu: int = 1) -> PodView:
    wants = gpu or {SLICE: 1}
    requests = {"cpu": cpu, "memory": _GIB, **wants}
    return PodView(
        namespace="bad",
        name=f"bad-{number:05}",
        uid=f"bad-{number:05}",
        created=number,
        priority=priority,
        requests=tuple(sorted(requests.items())),
        gpu=tuple(sorted(wants.items())),
        most_mps_per_container=1,
        unschedulable=True,
    )


def apart(operator: str, *values: str, key: str = "app", topology: str = HOST) -> PodAffinityTerm:
    """In all namespaces."""
    selector = LabelSelector(requirements=(Requirement(key=key, operator=operator, values=values),))
    return PodAffinityTerm(topology_key=topology, selector=selector, namespace_selector=LabelSelector())


def plain() -> list[PodView]:
    return [pod(0)]


def values(pods: int, number: int) -> list[PodView]:
    found = []
    for one in range(pods):
        term = apart("In", *(f"v{one}-{value}" for value in range(number)))
        found.append(replace(pod(one), labels=(("own", f"o{one}"),), anti_affinity=(term,)))
    return found


def terms(number: int, operator: str = "In") -> list[PodView]:
    return [replace(pod(0), anti_affinity=tuple(apart(operator, f"v{one}") for one in range(number)))]


def themselves(pods: int) -> list[PodView]:
    own = [(pod(one), f"o{one}") for one in range(pods)]
    return [replace(one, labels=(("own", name),), anti_affinity=(apart("In", name, key="own"),)) for one, name in own]


def unlike(pods: int) -> list[PodView]:
    """Each means every pod but those of one app: no index serves such a term."""
    return [replace(pod(one), anti_affinity=(apart("NotIn", f"v{one}", topology="none"),)) for one in range(pods)]


def sizes(pods: int) -> list[PodView]:
    return [pod(one, gpu={f"nvidia.com/gpu-{one + 1}gb": 1}) for one in range(pods)]


def crowded_sizes(pods: int) -> list[PodView]:
    """More than fit, of CPU, too."""
    return [pod(one, gpu={f"nvidia.com/gpu-{1 + one % 79}gb": 1}, cpu=500 + 7 * one) for one in range(pods)]


def counts(pods: int) -> list[PodView]:
    return [pod(one, gpu={SLICE: 1 + one % 500}) for one in range(pods)]


def priorities(pods: int) -> list[PodView]:
    profiles = ("1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb")
    return [pod(one, gpu={f"nvidia.com/mig-{profiles[one % 4]}": 1}, priority=one, cpu=1 + one) for one in range(pods)]


def off_one_node(pods: int, nodes: int) -> list[PodView]:
    """Every node is a group of its own, and each pod may use all groups but one."""
    profiles, found = ("1g.10gb", "2g.20gb", "3g.40gb"), []
    for one in range(pods):
        other = Requirement(key="metadata.name", operator="NotIn", values=(f"node-{one % nodes:05}",))
        affinity = (NodeSelectorTerm(fields=(other,)),)
        made = pod(one, gpu={f"nvidia.com/mig-{profiles[one % 3]}": 1}, cpu=1 + one)
        found.append(replace(made, node_affinity=affinity))
    return found


def mixtures(pods: int) -> list[PodView]:
    """Of unlike combinations."""
    names = [f"nvidia.com/mig-{name}" for name in ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb")]
    return [
        pod(one, gpu={names[one % 4]: 1 + one // 4 % 7, names[(one + 1) % 4]: 1 + one // 28}) for one in range(pods)
    ]


def mixtures_of_four(pods: int) -> list[PodView]:
    """Of unlike combinations, each of every profile."""
    names = [f"nvidia.com/mig-{name}" for name in ("1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb")]
    return [pod(one, gpu={name: 1 + one // 10**place % 10 for place, name in enumerate(names)}) for one in range(pods)]


def own_resources(pods: int) -> list[PodView]:
    """Each requests something that no node has, and no other pod requests."""
    plain = [pod(one) for one in range(pods)]
    return [replace(one, requests=(*one.requests, (f"odd.example/{one.name}", 1))) for one in plain]


def scarce(pods: int, *rising: str) -> list[PodView]:
    """Each needs less storage than the one before, and more of these: that one had no place says nothing of it."""
    profiles, found = ("1g.10gb", "2g.20gb", "3g.40gb"), []
    for one in range(pods):
        made = pod(one, gpu={f"nvidia.com/mig-{profiles[one % 3]}": 1})
        more = {STORAGE: 400_000 + pods - one, **{name: 400_000 + one for name in rising}}
        found.append(replace(made, requests=tuple(sorted({**dict(made.requests), **more}.items()))))
    return found


def ports(pods: int, number: int) -> list[PodView]:
    return [
        replace(pod(one), host_ports=tuple(HostPort(port=1 + (7 * one + port) % 60_000) for port in range(number)))
        for one in range(pods)
    ]


ROWS: Mapping[str, Row] = {
    "one plain pod": Row(pods=plain),
    "1 pod, 60,000 values": Row(pods=partial(values, 1, 60_000)),
    "1 pod, 5,000 terms of one value": Row(pods=partial(terms, 5_000)),
    "60 pods, 20,000 values each": Row(pods=partial(values, 60, 20_000)),
    "250 pods that keep off themselves": Row(pods=partial(themselves, 250)),
    "300 pods that keep off themselves": Row(pods=partial(themselves, 300)),
    "600 pods that keep off themselves": Row(pods=partial(themselves, 600)),
    "3,000 pods, gpu-1gb to gpu-3000gb": Row(pods=partial(sizes, 3_000)),
    "3,000 pods, gpu-1gb to gpu-3000gb, MPS": Row(pods=partial(sizes, 3_000), mix="mps", crowded=True),
    "10,000 pods, gpu-1gb to gpu-79gb, MPS, 500 nodes": Row(
        pods=partial(crowded_sizes, 10_000), nodes=500, serving=500, mix="mps", crowded=True
    ),
    "10,000 pods, a resource of its own each, 1,000 nodes": Row(
        pods=partial(own_resources, 10_000), nodes=1_000, serving=1_000
    ),
    "1,500 pods, unlike scarce storage": Row(pods=partial(scarce, 1_500), serving=100, room=ROOM, crowded=True),
    "10,000 pods, storage and huge pages, 500 nodes": Row(
        pods=partial(scarce, 10_000, HUGE_PAGES), nodes=500, serving=500, room=ROOM, crowded=True
    ),
    "500 pods, 200 host ports each": Row(pods=partial(ports, 500, 200), nodes=200, crowded=True),
    "3,000 pods, 1 to 500 slices": Row(pods=partial(counts, 3_000)),
    "1 pod, 5,000 terms NotIn": Row(pods=partial(terms, 5_000, "NotIn"), all_compared=True),
    "3,000 pods, a term NotIn each": Row(pods=partial(unlike, 3_000), all_compared=True),
    "3,000 priorities": Row(pods=partial(priorities, 3_000), crowded=True),
    "3,000 pods, unlike combinations": Row(pods=partial(mixtures, 3_000), crowded=True),
    "5,000 pods, unlike combinations of four": Row(pods=partial(mixtures_of_four, 5_000), serving=100, crowded=True),
    "6,000 pods NotIn one node each, 1,000 nodes": Row(
        pods=partial(off_one_node, 6_000, 1_000), nodes=1_000, serving=1_000
    ),
}


def cluster(row: Row, bound: int) -> Snapshot:
    """The pods that are bound request no GPU."""
    found = instance(nodes=row.serving, gpus=8, pods=0, seed=1, mix=MIXES[row.mix])
    nodes = tuple(_named(replace(one, allocatable={**one.allocatable, **row.room})) for one in found.nodes)
    others = tuple(_named(NodeView(name=f"other-{one:05}", uid=f"o{one}")) for one in range(row.nodes - row.serving))
    names = [one.name for one in (*nodes, *others)]
    there = tuple(
        PodView(
            namespace=f"team-{one % _TEAMS}",
            name=f"b{one:06}",
            uid=f"b{one:06}",
            node=names[one % len(names)],
            phase="Running",
            labels=(("app", f"app-{one % 500}"), ("id", str(one))),
        )
        for one in range(bound)
    )
    request = {"nvidia.com/gpu-10gb" if row.mix == "mps" else SLICE: 1}
    good = replace(
        pod(0, gpu=request, priority=10_000 if row.crowded else 0), namespace="good", name="good", uid="good"
    )
    spaces: dict[str, dict[str, str]] = {
        name: {} for name in ("bad", "good", "running", *(f"team-{one}" for one in range(_TEAMS)))
    }
    context = SchedulingContext(namespaces=spaces)
    return replace(
        found, nodes=nodes, other_nodes=others, other_pods=there, pending=(*row.pods(), good), context=context
    )


def _named(node: NodeView) -> NodeView:
    return replace(node, labels={**node.labels, HOST: node.name})


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    row: str
    bound: int
    cpu_seconds: float
    calls: int
    work: int
    """As counted in the budget of the pass."""
    cut_short: str
    ordinary: bool
    """The ordinary pod has a place."""


def measure(name: str, row: Row, bound: int, *, calls: bool = False) -> Measured:
    snapshot, work = cluster(row, bound), 0
    spend = Effort.spend

    def spending(self: Effort, by: PodView, amount: int) -> None:
        nonlocal work
        work += amount
        spend(self, by, amount)

    with collector_paused(), patch.object(Effort, "spend", spending):  # as the controller's loop does
        began = time.process_time()
        result = plan(snapshot)
        seconds = time.process_time() - began
    return Measured(
        row=name,
        bound=bound,
        cpu_seconds=round(seconds, 2),
        calls=_calls(snapshot) if calls else 0,
        work=work,
        cut_short=result.cut_short.value if result.cut_short else "",
        ordinary="good" in {one.uid for one in result.placed},
    )


def _calls(snapshot: Snapshot) -> int:
    found = 0

    def counting(_frame: object, event: str, _argument: object) -> None:
        nonlocal found
        found += event == "call"

    sys.setprofile(counting)
    try:
        plan(snapshot)
    finally:
        sys.setprofile(None)
    return found


HEADER = "| pending pods | bound | CPU s | calls | work | cut short | ordinary pod |\n|---|---:|---:|---:|---:|---|---|"


def line(one: Measured) -> str:
    served = "placed" if one.ordinary else "not placed"
    figures = f"{one.bound:,} | {one.cpu_seconds:.2f} | {one.calls or '–'} | {one.work:,}"
    return f"| {one.row} | {figures} | {one.cut_short or '–'} | {served} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bound", default="5000,20000", help="numbers of bound pods")
    parser.add_argument("--rows", default="", help="only rows whose name has this part")
    parser.add_argument("--calls", action="store_true", help="count function calls, too: ten times as slow")
    given = parser.parse_args(arguments)
    served = True
    print(HEADER)
    for name, row in ROWS.items():
        for bound in map(int, given.bound.split(",") if given.rows in name else ()):
            found = measure(name, row, bound, calls=given.calls)
            served = served and found.ordinary
            print(line(found), flush=True)
    return int(not served)


if __name__ == "__main__":
    sys.exit(main())
