"""Planning instances that look like clusters, and what can be placed in each: `case(family, ...)`.

Takes a family, a size and a seed. What is free on the GPUs of `benchmarks.instances` is filled with partitions at
random places, and each of them becomes a pending pod that fits there: all of them fit together, by construction. What a
family adds (claims, spread, ...) is met by these places, too. `more` adds pods of the same kinds, which may not fit:
then `judged` is the same cluster for the exact bound, with claims as the node selectors that mean the same; it is None
where other pods decide. The same arguments give the same case on every machine.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks import placed_rules
from benchmarks.instances import PRODUCT, Mix, instance, profile_of
from benchmarks.placed_rules import HOST, ZONE, Named, Placed
from controller.model.snapshot import Snapshot
from controller.model.views import GpuView, NodeView, PodView
from partitioning.layouts import Instance
from partitioning.models import GpuModel
from partitioning.placements import occupancy, placements_of
from partitioning.resources import mig_resource

_GIB = 2**30
_ZONES = 3
_SLACK = 0.95
"""How much of a node's free CPU and memory the pods that fit may take."""
_A100_40, _A100_80 = "NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-80GB"
_MODELS = (PRODUCT, _A100_80, _A100_40, "NVIDIA-A30", "NVIDIA-H200")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """`cpu_milli` and `memory_gib` are drawn per node, those per slice per pod."""

    products: Sequence[str] = (PRODUCT,)
    cpu_milli: Sequence[int] = (192_000,)
    cpu_milli_per_slice: Sequence[int] = (1000, 2000)
    memory_gib: Sequence[int] = (2048,)
    memory_gib_per_slice: Sequence[int] = (8,)
    several: float = 0.0
    priorities: Sequence[int] = (0,)
    filled: float = 0.85
    rules: Sequence[tuple[float, placed_rules.Rule]] = ()
    """Each with the share of the pods that it may have; a pod has one at most."""
    decided_by_pods: bool = False
    """Where a pod may go depends on others: no exact bound."""


_UNEVEN, _LIGHT_AND_HEAVY = (64_000, 192_000), (1000, 2000, 4000, 8000)
_LEVELS = (0, 10, 100)
FAMILIES: Mapping[str, Family] = {
    "plain": Family(),
    "cpu uneven": Family(cpu_milli=_UNEVEN, cpu_milli_per_slice=_LIGHT_AND_HEAVY),
    "memory uneven": Family(memory_gib=(256, 1024), memory_gib_per_slice=(4, 8, 16, 32)),
    "2 models": Family(products=_MODELS[:2]),
    "3 models": Family(products=_MODELS[:3]),
    "5 models": Family(products=_MODELS),
    "several": Family(several=0.3),
    "levels": Family(priorities=_LEVELS),
    "cpu uneven, levels": Family(priorities=_LEVELS, cpu_milli=_UNEVEN, cpu_milli_per_slice=_LIGHT_AND_HEAVY),
    "memory uneven, levels": Family(priorities=_LEVELS, memory_gib=(256, 1024), memory_gib_per_slice=(4, 8, 16, 32)),
    "claims": Family(rules=((0.5, placed_rules.harmless_claims),)),
    "claims, levels": Family(priorities=_LEVELS, rules=((0.3, placed_rules.harmless_claims),)),
    "zonal claims": Family(rules=((0.5, placed_rules.zonal_claims),)),
    "node claims": Family(rules=((0.2, placed_rules.node_claims),)),
    "jobs": Family(rules=((1.0, placed_rules.jobs),)),
    "daemon": Family(rules=((1.0, placed_rules.one_per_node),)),
    "hostnames": Family(rules=((0.1, placed_rules.hostnames),)),
    "spread": Family(rules=((0.8, placed_rules.zone_spread),), decided_by_pods=True),
    "spread, levels": Family(priorities=_LEVELS, rules=((0.8, placed_rules.zone_spread),), decided_by_pods=True),
    "affinity": Family(rules=((0.8, placed_rules.zone_affinity),), decided_by_pods=True),
    "anti-affinity": Family(rules=((0.5, placed_rules.host_anti_affinity),), decided_by_pods=True),
    "all": Family(
        products=_MODELS[:3],
        several=0.1,
        priorities=_LEVELS,
        cpu_milli=_UNEVEN,
        cpu_milli_per_slice=_LIGHT_AND_HEAVY,
        rules=(
            (0.15, placed_rules.harmless_claims),
            (0.1, placed_rules.zonal_claims),
            (0.05, placed_rules.node_claims),
            (0.1, placed_rules.jobs),
            (0.1, placed_rules.zone_spread),
            (0.1, placed_rules.zone_affinity),
            (0.1, placed_rules.host_anti_affinity),
        ),
        decided_by_pods=True,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    snapshot: Snapshot
    places: Mapping[str, str]
    """Where the pods fit together by construction, node by uid: all of them without `more`."""
    judged: Snapshot | None


def case(family: Family, *, nodes: int, gpus: int, seed: int, more: float = 0.0, most_pods: int | None = None) -> Case:
    """`more`: so many pods in addition, as a share of those that fit. `most_pods`: of those that fit."""
    rng = random.Random(seed)
    empty = instance(nodes=nodes, gpus=gpus, pods=0, seed=seed, mix=Mix(filled=family.filled, products=family.products))
    servers = tuple(_dressed(rng, node, family) for node in empty.nodes)
    empty = replace(empty, nodes=servers)
    placed = list(_fill(rng, family, empty, most_pods))
    named = Named()
    free = list(placed)
    rng.shuffle(free)
    for share, rule in family.rules:
        count = round(share * len(placed))
        chosen, free = free[:count], free[count:]
        rule(rng, chosen, servers, named)
    all_of_them = placed + [replace(rng.choice(placed), node="") for _ in range(round(more * len(placed)))]
    rng.shuffle(all_of_them)
    pending = _named([one.pod for one in all_of_them])
    places = {pod.uid: one.node for pod, one in zip(pending, all_of_them, strict=True) if one.node}
    judged = None
    if not family.decided_by_pods:
        judged = replace(empty, pending=_named([one.judged or one.pod for one in all_of_them]))
    snapshot = replace(empty, pending=pending, context=named.context())
    return Case(snapshot=snapshot, places=places, judged=judged)


def _dressed(rng: random.Random, node: NodeView, family: Family) -> NodeView:
    amounts = {"cpu": rng.choice(list(family.cpu_milli)), "memory": rng.choice(list(family.memory_gib)) * _GIB}
    labels = {**node.labels, HOST: node.name, ZONE: f"zone-{rng.randrange(_ZONES)}"}
    return replace(node, labels=labels, allocatable={**node.allocatable, **amounts})


@dataclass(slots=True)
class _Left:
    """What the pods that fit may still take of a node."""

    cpu_milli: float
    memory: float
    pods: int


def _fill(rng: random.Random, family: Family, empty: Snapshot, most: int | None) -> Iterator[Placed]:
    """GPU by GPU, node after node in random order."""
    running: dict[str, list[PodView]] = {}
    for pod in empty.pods:
        running.setdefault(pod.node, []).append(pod)
    gpus = {plan.name: plan.gpus for plan in empty.plans}
    count = 0
    for node in rng.sample(list(empty.nodes), len(empty.nodes)):
        left = _left(node, running.get(node.name, []))
        for gpu in gpus[node.name]:
            for requests in _requests(rng, family, gpu, left):
                if count == most:
                    return
                pod = _pod(requests, rng.choice(list(family.priorities)))
                yield Placed(pod=pod, node=node.name, zone=node.labels[ZONE])
                count += 1


def _left(node: NodeView, running: Sequence[PodView]) -> _Left:
    held = [dict(pod.requests) for pod in running]
    return _Left(
        cpu_milli=_SLACK * (node.allocatable["cpu"] - sum(one["cpu"] for one in held)),
        memory=_SLACK * (node.allocatable["memory"] - sum(one["memory"] for one in held)),
        pods=node.allocatable["pods"] - len(held),
    )


def _requests(rng: random.Random, family: Family, gpu: GpuView, left: _Left) -> Iterator[dict[str, int]]:
    """Of pods that fit on a GPU in addition to what is in use there."""
    model = gpu.model
    assert isinstance(model, GpuModel)
    used = [Instance(start=one.start, size=one.size, profile=one.profile) for one in gpu.partitions if one.used]
    mask = occupancy(model, used)
    for _ in range(12):
        profile = profile_of(rng, model)
        count, taken = 0, mask
        for _ in range(rng.choice((2, 3)) if rng.random() < family.several else 1):
            places = [place for place in placements_of(model)[profile] if not taken & place.blockers]
            if places:
                taken |= rng.choice(places).taken
                count += 1
        spec = model.profile(profile)
        assert spec is not None
        slices = spec.compute_slices * count
        cpu = [one * slices for one in family.cpu_milli_per_slice if one * slices <= left.cpu_milli]
        memory = [one * slices * _GIB for one in family.memory_gib_per_slice if one * slices * _GIB <= left.memory]
        if count and cpu and memory and left.pods:
            requests = {"cpu": rng.choice(cpu), "memory": rng.choice(memory), mig_resource(profile): count}
            left.cpu_milli -= requests["cpu"]
            left.memory -= requests["memory"]
            left.pods -= 1
            mask = taken
            yield requests


def _pod(requests: Mapping[str, int], priority: int) -> PodView:
    gpu = tuple((name, count) for name, count in requests.items() if name not in ("cpu", "memory"))
    return PodView(
        namespace="pending",
        name="",
        uid="",
        priority=priority,
        requests=tuple(sorted(requests.items())),
        gpu=gpu,
        unschedulable=True,
    )


def _named(pods: Sequence[PodView]) -> tuple[PodView, ...]:
    return tuple(
        replace(pod, name=f"pod-{number:05}", uid=f"pending-{number:05}", created=number)
        for number, pod in enumerate(pods)
    )
