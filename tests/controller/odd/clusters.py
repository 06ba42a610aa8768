"""Clusters with ordinary and odd pods, drawn from a seed, and what must hold for the ordinary ones.

`Case` has the snapshot with the odd pods and without them. Either there is room for all, or the odd ones can never run:
then every ordinary pod is placed as without them. `run` plans both and returns what is wrong, and what the pass cost.
"""

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from unittest.mock import patch

from controller.model.scheduling import SchedulingContext
from controller.model.snapshot import Snapshot
from controller.model.views import NodeView, PlanView, PodView
from controller.planner.effort import OWN_VISITS, WORK, Effort
from controller.planner.inventory import node_groups
from controller.planning import plan
from controller.simulator import filter_node
from tests.builders import objects
from tests.builders.models import A100, H100
from tests.builders.objects import H100_NAME, Json
from tests.builders.views import plan_reading, pod_view
from tests.controller.odd import pods as odd
from tests.controller.planner.builders import mig, server
from tests.controller.planner.checker import check

MOST_OF_POD = OWN_VISITS + 50_000
"""Visits and filters that one pod may cost in a small cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    seed: int
    ordinary: frozenset[str]
    """Uids."""
    with_odd: Snapshot
    without: Snapshot


@dataclass(slots=True, kw_only=True)
class Cost:
    """What a pass looked at."""

    by_pod: Counter[str] = field(default_factory=Counter)
    filters: int = 0
    """Of pods on nodes, whatever else runs there."""


def case(seed: int) -> Case:
    rng = random.Random(seed)
    roomy = rng.random() < 0.5
    servers = [_server(rng, number) for number in range(6 if roomy else rng.randint(1, 3))]
    if rng.random() < 0.2:
        servers.append(_strange_server(rng))
    ordinary = [_ordinary(rng, number, len(servers)) for number in range(rng.randint(2, 6))]
    pending = [pod_view(_odd(rng, number, roomy)) for number in range(rng.randint(1, 10))]
    names = [node.name for node, _ in servers]
    bound = [pod_view(odd.bound(rng, f"bound-{one}", rng.choice(names))) for one in range(rng.randint(0, 6))]
    aged = [pod.uid for pod in (*ordinary, *pending) if rng.random() < 0.4]
    plain = Snapshot(
        nodes=tuple(sorted((node for node, _ in servers), key=lambda node: node.name)),
        plans=tuple(sorted((found for _, found in servers), key=lambda found: found.name)),
        pending=_in_order(ordinary),
        context=SchedulingContext(
            namespaces={name: {} for name in (*odd.NAMESPACES, "good")},
            claims={},
            volumes={},
            storage_classes={},
            dra_resources=frozenset({"example.com/nic"} if rng.random() < 0.2 else ()),
        ),
        aged=frozenset(aged) & {pod.uid for pod in ordinary},
    )
    mixed = replace(plain, pods=_in_order(bound), pending=_in_order([*ordinary, *pending]), aged=frozenset(aged))
    return Case(seed=seed, ordinary=frozenset(pod.uid for pod in ordinary), with_odd=mixed, without=plain)


def run(one: Case) -> tuple[list[str], Cost]:
    """What is wrong with the plan, in sentences."""
    usual = {placed.uid for placed in plan(one.without).placed}
    with counted() as cost:
        result = plan(one.with_odd)
    check(_with_dra(one.with_odd), result)
    wrong = [f"{failure.key}: {failure.message}" for failure in result.pod_failures]
    wrong += [f"node {failure.node}: {failure.message}" for failure in result.failures]
    placed = {placed.uid for placed in result.placed}
    wrong += [f"{uid} is not placed" for uid in sorted((usual & one.ordinary) - placed)]
    mentioned = placed | {missed.uid for missed in result.unplaced}
    wrong += [f"{pod.key} is not mentioned" for pod in one.with_odd.pending if pod.gpu and pod.uid not in mentioned]
    wrong += [f"{name} cost {work}" for name, work in cost.by_pod.items() if work > MOST_OF_POD]
    if cost.by_pod.total() > WORK or cost.filters > 2 * len(one.with_odd.pending) * len(one.with_odd.nodes):
        wrong.append(f"the pass cost {cost.by_pod.total()} and {cost.filters} filters")
    return [f"seed {one.seed}: {text}" for text in wrong], cost


def _with_dra(snapshot: Snapshot) -> Snapshot:
    """What DRA serves is there as if nodes had it."""
    served = dict.fromkeys(sorted(snapshot.context.dra_resources), 2**63)
    nodes = tuple(replace(node, allocatable={**node.allocatable, **served}) for node in snapshot.nodes)
    return replace(snapshot, nodes=nodes)


@contextmanager
def counted() -> Iterator[Cost]:
    found = Cost()
    spend = Effort.spend

    def spending(self: Effort, pod: PodView, work: int) -> None:
        found.by_pod["/".join(pod.key)] += work
        spend(self, pod, work)

    def filtering(*arguments: object, **more: object) -> object:
        found.filters += 1
        return filter_node(*arguments, **more)  # type: ignore[arg-type]

    with patch.object(Effort, "spend", spending), patch.object(node_groups, "filter_node", filtering):
        yield found


def _in_order(pods: list[PodView]) -> tuple[PodView, ...]:
    return tuple(sorted(pods, key=lambda pod: pod.key))


def _server(rng: random.Random, number: int) -> tuple[NodeView, PlanView]:
    model = A100 if number and rng.random() < 0.2 else H100
    used = [("1g.10gb", 0)] if rng.random() < 0.2 and model is H100 else []
    labels = {odd.HOST: f"n{number}", odd.ZONE: f"z{number % 2}"}
    gpus = [mig(index, gpu_model=model, used=used if index == 1 else []) for index in range(2)]
    return server(f"n{number}", *gpus, labels=labels)


def _strange_server(rng: random.Random) -> tuple[NodeView, PlanView]:
    """Its status reports GPUs as no driver does."""
    starts = list(range(rng.choice((4, 16))))
    profiles = [
        {"name": f"{size}g.{number + 1}gb", "id": number, "slices": size, "size": size, "starts": starts}
        for number in range(rng.choice((1, 12, 32)))
        for size in [rng.choice((1, 1, 2))]
    ]
    gpu = {"index": 0, "uuid": objects.uuid_of(0), "model": H100_NAME, "state": "Ready", "migMode": "Enabled"}
    status = {"gpus": [gpu], "models": [{"name": H100_NAME, "memoryMiB": 81559, "profiles": profiles}]}
    view = plan_reading(objects.plan("strange", status=status)).gpus[0].view
    return server("strange", view)


def _ordinary(rng: random.Random, number: int, nodes: int) -> PodView:
    apart = {"labelSelector": {"matchLabels": {"app": "good"}}, "topologyKey": odd.HOST}
    more: Json = {"affinity": {"podAntiAffinity": {odd.REQUIRED: [apart]}}} if number == 0 and nodes > 1 else {}
    labels = {"app": "good"} if number == 0 else {}
    requests = {odd.SLICE: "1", "cpu": rng.choice(("1", "500m")), "memory": "1Gi"}
    return pod_view(
        objects.pod(f"good-{number}", namespace="good", requests=requests, metadata={"labels": labels}, **more)
    )


def _odd(rng: random.Random, number: int, roomy: bool) -> Json:
    raw = rng.choice(odd.KINDS)(rng, f"odd-{number}")
    if not roomy:
        raw["spec"]["nodeSelector"] = odd.NOWHERE
        raw["spec"]["priority"] = rng.choice((0, 1000))
    return raw
