"""Clusters with ordinary and odd pods, drawn from a seed, and what must hold for the ordinary ones.

`Case` has the snapshot with the odd pods and without them. Either there is room for all, or none of the odd ones can
ever run. With room, every ordinary pod is placed as without them. Without, as many of them are. How often one has a
place in another's stead is counted.
`run` plans both and returns what is wrong, and what the pass cost.
"""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

from controller.api.pod_groups import COSCHEDULING, KUBERNETES
from controller.model.scheduling import (
    FilterProfile,
    NodeSelectorTerm,
    Requirement,
    SchedulingContext,
    SpreadConstraint,
)
from controller.model.snapshot import Snapshot
from controller.model.views import NodeView, PlannerOptions, PlanView, PodView
from controller.planner.effort import OWN_VISITS, WORK, Effort
from controller.planner.inventory import node_groups
from controller.planning import plan
from controller.simulator.filters import filter_node
from controller.simulator.verdicts import Verdict
from partitioning.resources import WHOLE
from tests.builders import objects
from tests.builders.models import A100, H100
from tests.builders.objects import H100_NAME, Json
from tests.builders.views import plan_reading, pod_view
from tests.controller.odd import hopeless
from tests.controller.odd import pods as odd
from tests.controller.planner.builders import mig, mps, server
from tests.controller.planner.checker import check

LARGER = ("nvidia.com/mig-2g.20gb", "nvidia.com/mig-3g.40gb", "nvidia.com/mig-7g.80gb", "nvidia.com/gpu-30gb")
IGNORED = "example.com/ignored"
SCHEDULERS = frozenset({"default-scheduler", "odd-scheduler", "broken-scheduler"})
OPTIONS = PlannerOptions(
    profiles={
        "odd-scheduler": FilterProfile(
            scheduler_name="odd-scheduler",
            ignored_resources=frozenset({IGNORED}),
            added_affinity=(NodeSelectorTerm(labels=(Requirement(key=odd.ZONE, operator="In", values=("z0", "z1")),)),),
            default_spread=(SpreadConstraint(topology_key=odd.ZONE, max_skew=5),),
        ),
        "broken-scheduler": FilterProfile(scheduler_name="broken-scheduler", prefilters=()),
    }
)
FILTERS_OF_POD = 6
"""How often a pod may be held against one node: to group nodes, to explain, and once for each obstacle taken away."""
MOST_OF_POD = OWN_VISITS + 50_000
"""Visits and filters that one pod may cost in a small cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    seed: int
    roomy: bool
    """There is room for all; else none of the odd ones can ever run."""
    ordinary: frozenset[str]
    """Uids."""
    with_odd: Snapshot
    without: Snapshot


@dataclass(slots=True, kw_only=True)
class Cost:
    """What a pass looked at."""

    by_pod: Counter[str] = field(default_factory=Counter)
    filters: Counter[str] = field(default_factory=Counter)
    """How often a pod was held against a node, whatever else runs there; one stands for others like it."""
    swapped: int = 0
    """Ordinary pods that have a place in another's stead."""


def case(seed: int) -> Case:
    rng = random.Random(seed)
    roomy = rng.random() < 0.5
    servers = _servers(rng, roomy)
    names = [node.name for node, _ in servers]
    ordinary = [_ordinary(rng, number, len(servers), roomy) for number in range(rng.randint(2, 6 if roomy else 12))]
    pending = [pod_view(raw) for raw in _pending(rng, roomy)]
    bound = [pod_view(odd.bound(rng, f"bound-{one}", rng.choice(names), roomy)) for one in range(rng.randint(0, 6))]
    daemons = [] if roomy else [pod_view(raw) for raw in hopeless.daemons(names)]
    # What it holds is counted by kube-scheduler, so it is there in both.
    daemons += [pod_view(odd.hiding(rng, rng.choice(names)))] if rng.random() < 0.2 else []
    aged = [pod.uid for pod in (*ordinary, *pending) if rng.random() < 0.4]
    plain = Snapshot(
        nodes=tuple(sorted((node for node, _ in servers), key=lambda node: node.name)),
        plans=tuple(sorted((found for _, found in servers), key=lambda found: found.name)),
        pods=_in_order(daemons),
        pending=_in_order(ordinary),
        context=_context(rng),
        aged=frozenset(aged) & {pod.uid for pod in ordinary},
        scheduler_names=SCHEDULERS,
    )
    mixed = replace(
        plain,
        pods=_in_order([*daemons, *bound]),
        pending=_in_order([*ordinary, *pending]),
        aged=frozenset(aged),
        resting=frozenset(pod.uid for pod in pending if rng.random() < 0.1),
        reservations={pod.uid: rng.choice(names) for pod in pending if rng.random() < 0.2},
        bind_failures={pod.uid: rng.choice(names) for pod in pending if rng.random() < 0.05},
    )
    uids = frozenset(pod.uid for pod in ordinary)
    return Case(seed=seed, roomy=roomy, ordinary=uids, with_odd=mixed, without=plain)


def run(one: Case) -> tuple[list[str], Cost]:
    """What is wrong with the plan, in sentences."""
    usual = {placed.uid for placed in plan(one.without, OPTIONS).placed}
    with counted() as cost:
        result = plan(one.with_odd, OPTIONS)
    check(_as_others_serve(one.with_odd), result)
    wrong = [f"{failure.key}: {failure.message}" for failure in result.pod_failures]
    wrong += [f"node {failure.node}: {failure.message}" for failure in result.failures]
    placed = {placed.uid for placed in result.placed}
    wrong += [f"{uid} has no place without the odd ones" for uid in sorted(one.ordinary - usual) if one.roomy]
    lost, gained = usual - placed, (placed & one.ordinary) - usual
    cost.swapped = min(len(lost), len(gained))
    if len(lost) > len(gained) or (one.roomy and lost):
        wrong += [f"{uid} is not placed" for uid in sorted(lost)]
    wrong += [f"{uid} can never run, and is placed" for uid in sorted(placed - one.ordinary) if not one.roomy]
    mentioned = placed | {missed.uid for missed in result.unplaced}
    wrong += [f"{pod.key} is not mentioned" for pod in one.with_odd.pending if _is_ours(pod) - mentioned]
    wrong += [f"{name} cost {work}" for name, work in cost.by_pod.items() if work > MOST_OF_POD]
    most = FILTERS_OF_POD * len(one.with_odd.nodes)
    wrong += [f"{name} was filtered {count} times" for name, count in cost.filters.items() if count > most]
    if cost.by_pod.total() > WORK:
        wrong.append(f"the pass cost {cost.by_pod.total()}")
    return [f"seed {one.seed}: {text}" for text in wrong], cost


def _is_ours(pod: PodView) -> set[str]:
    """Its uid, if it must be mentioned: whole GPUs are served by others, too."""
    whole = all(name == WHOLE for name, _ in pod.gpu)
    return set() if not pod.gpu or (whole and (pod.claims or pod.scheduler_name not in SCHEDULERS)) else {pod.uid}


def _as_others_serve(snapshot: Snapshot) -> Snapshot:
    """What DRA serves, and what a scheduler ignores, is there as if nodes had it."""
    served = dict.fromkeys(sorted({*snapshot.context.dra_resources, IGNORED}), 2**63)
    nodes = tuple(replace(node, allocatable={**node.allocatable, **served}) for node in snapshot.nodes)
    return replace(snapshot, nodes=nodes)


@contextmanager
def counted() -> Iterator[Cost]:
    found = Cost()
    spend = Effort.spend

    def spending(self: Effort, pod: PodView, work: int) -> None:
        found.by_pod["/".join(pod.key)] += work
        spend(self, pod, work)

    def filtering(pod: PodView, node: NodeView, **more: Any) -> Verdict:
        found.filters["/".join(pod.key)] += 1
        return filter_node(pod, node, **more)

    with patch.object(Effort, "spend", spending), patch.object(node_groups, "filter_node", filtering):
        yield found


def _in_order(pods: list[PodView]) -> tuple[PodView, ...]:
    return tuple(sorted(pods, key=lambda pod: pod.key))


def _context(rng: random.Random) -> SchedulingContext:
    return SchedulingContext(
        namespaces={name: odd.labels_of_namespace(rng, name) for name in (*odd.NAMESPACES, "good")},
        claims=hopeless.CLAIMS,
        volumes=hopeless.VOLUMES,
        storage_classes={},
        services={},
        workloads={},
        pod_groups={(system, "odd-a", "g1"): rng.choice((0, 2, 9999)) for system in (KUBERNETES, COSCHEDULING)},
        dra_resources=frozenset({"example.com/nic"} if rng.random() < 0.2 else ()),
    )


def _servers(rng: random.Random, roomy: bool) -> list[tuple[NodeView, PlanView]]:
    """The first of them cut by MIG, and some shared by MPS."""
    kinds = ["mig"] * 6 + ["mps"] * 3 if roomy else [rng.choice(("mig", "mig", "mps")) for _ in range(3)]
    servers = [_server(rng, number, kind) for number, kind in enumerate(kinds if roomy else ["mig", *kinds])]
    if rng.random() < 0.2:
        servers.append(_strange_server(rng))
    return servers


def _server(rng: random.Random, number: int, kind: str) -> tuple[NodeView, PlanView]:
    model = A100 if number and rng.random() < 0.2 else H100
    used = [("1g.10gb", 0)] if rng.random() < 0.2 and model is H100 else []
    labels = {odd.HOST: f"n{number}", odd.ZONE: f"z{number % 2}", "cores": odd.NUMBERS[number % len(odd.NUMBERS)]}
    gpus = [
        mig(index, gpu_model=model, used=used if index == 1 else []) if kind == "mig" else mps(index, gpu_model=model)
        for index in range(2)
    ]
    return server(f"n{number}", *gpus, labels=labels, partitioning=kind, cpu=1000 * hopeless.CPU_OF_NODE)


def _strange_server(rng: random.Random) -> tuple[NodeView, PlanView]:
    """Its status reports GPUs as no driver does."""
    starts = ",".join(map(str, range(rng.choice((4, 16)))))
    profiles = "; ".join(
        f"{size}g.{number + 1}gb id {number} slices {size} size {size} at {starts}"
        for number in range(rng.choice((1, 12, 32)))
        for size in [rng.choice((1, 1, 2))]
    )
    gpu = {"index": 0, "uuid": objects.uuid_of(0), "model": H100_NAME, "state": "Ready", "migMode": "Enabled"}
    status = {"gpus": [gpu], "models": [{"name": H100_NAME, "memoryMiB": 81559, "profiles": profiles}]}
    view = plan_reading(objects.plan("strange", status=status)).gpus[0].view
    return server("strange", view)


def _ordinary(rng: random.Random, number: int, nodes: int, roomy: bool) -> PodView:
    """The first keeps away from others of its app. Where there is little room, they compete for it."""
    apart = {"labelSelector": {"matchLabels": {"app": "good"}}, "topologyKey": odd.HOST}
    more: Json = {"affinity": {"podAntiAffinity": {odd.REQUIRED: [apart]}}} if number == 0 and nodes > 1 else {}
    labels = {"app": "good"} if number == 0 else {}
    asked = odd.SLICE if roomy else rng.choice((odd.SLICE, *LARGER))
    requests = {asked: "1", "cpu": rng.choice(("1", "500m", "20")), "memory": "1Gi"}
    return pod_view(
        objects.pod(f"good-{number}", namespace="good", requests=requests, metadata={"labels": labels}, **more)
    )


def _pending(rng: random.Random, roomy: bool) -> list[Json]:
    """Of all kinds, or a crowd of one kind among them."""
    found = [rng.choice(odd.KINDS)(rng, f"odd-{number}") for number in range(rng.randint(1, 10))]
    if roomy:
        return found
    if rng.random() < 0.05:
        kind = rng.choice((odd.itself, odd.sizes, odd.scheduled, odd.named))
        found += [kind(rng, f"crowd-{number}") for number in range(60)]
    for raw in found:
        rng.choice(hopeless.REASONS)(rng, raw)
        raw["spec"]["priority"] = rng.choice((0, 0, 1000))
    return found
