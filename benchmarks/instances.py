"""Random planning instances: clusters partly in use, and pending pods, from a seed.

Takes sizes, a mix and a seed, returns a Snapshot. Nodes are H100 servers whose GPUs hold used and idle MIG instances
or MPS slices; pods request profiles in proportions seen in practice, or for slices of memory. The same arguments give
the same snapshot on every machine.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from controller.model.scheduling import Taint, Toleration
from controller.model.snapshot import Snapshot
from controller.model.views import (
    GpuView,
    MigDesired,
    MpsDesired,
    NodeView,
    PartitionView,
    PlannedGpu,
    PlanView,
    PodView,
)
from partitioning.layouts import Instance, Layout
from partitioning.models import GpuModel, model_for_product
from partitioning.mps import MpsSlice, shareable_mib, slice_of_gb
from partitioning.placements import placements_of
from partitioning.resources import mig_resource, mps_resource_gb, profile_of_resource

PRODUCT = "NVIDIA-H100-80GB-HBM3"
_WEIGHTS = {(1, 1): 40, (2, 2): 18, (3, 4): 20, (4, 4): 5, (7, 8): 8, (1, 2): 9}
"""By compute and memory slices."""
_WEIGHTS_GB = {5: 35, 8: 15, 10: 30, 20: 20}
_GIB = 2**30
_FILLS = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """What makes instances hard: scarce CPU, pools with taints, pods with several partitions, priorities."""

    cpu_milli_per_node: int = 192_000
    cpu_milli_per_slice: Sequence[int] = (1000, 2000)
    pools: int = 1
    pooled_pods: float = 0.0
    tainted_nodes: float = 0.0
    several: float = 0.0
    priorities: Sequence[int] = (0,)
    filled: float = 0.85
    """Share of GPUs that hold something already."""
    shared_nodes: float = 0.0
    """Share of nodes whose GPUs are shared by MPS."""
    mps_pods: float = 0.0
    """Share of pods that request a slice of memory."""
    products: Sequence[str] = (PRODUCT,)


MIXES = {
    "plain": Mix(),
    "empty": Mix(filled=0.0),
    "several": Mix(several=0.15),
    "tainted": Mix(pools=3, pooled_pods=0.4, tainted_nodes=0.1, several=0.1),
    "cpu": Mix(cpu_milli_per_slice=(1000, 2000, 4000, 8000), cpu_milli_per_node=96_000),
    "priorities": Mix(priorities=(0, 10, 100), several=0.05),
    "mps": Mix(shared_nodes=1.0, mps_pods=1.0),
    "mixed": Mix(shared_nodes=0.5, mps_pods=0.5, several=0.1),
}


def instance(*, nodes: int, gpus: int, pods: int, seed: int, mix: Mix) -> Snapshot:
    rng = random.Random(seed)
    models = [model for model in map(model_for_product, mix.products) if model is not None]
    node_views, plan_views, bound = [], [], []
    for number in range(nodes):
        model = models[0] if len(models) == 1 else rng.choice(models)
        node, plan, running = _node(rng, mix, model, number, gpus)
        node_views.append(node)
        plan_views.append(plan)
        bound += running
    pending = tuple(_pod(rng, mix, models, number) for number in range(pods))
    return Snapshot(nodes=tuple(node_views), plans=tuple(plan_views), pods=tuple(bound), pending=pending)


def _node(
    rng: random.Random, mix: Mix, model: GpuModel, number: int, gpus: int
) -> tuple[NodeView, PlanView, list[PodView]]:
    name = f"node-{number:05}"
    running: list[PodView] = []
    # Nothing is drawn where a mix has no MPS: its instances stay what they were.
    shared = mix.shared_nodes > 0 and rng.random() < mix.shared_nodes
    make = _shared_gpu if shared else _gpu
    views = tuple(make(rng, mix, model, node=name, index=index, running=running) for index in range(gpus))
    allocatable = {"cpu": mix.cpu_milli_per_node, "memory": 2048 * _GIB, "pods": 110}
    for view in views:
        for part in view.partitions:
            allocatable[part.resource] = allocatable.get(part.resource, 0) + 1
    tainted = rng.random() < mix.tainted_nodes
    node = NodeView(
        name=name,
        uid=f"uid-{name}",
        labels={"pool": str(rng.randrange(mix.pools))},
        taints=(Taint(key="reserved", effect="NoSchedule"),) if tainted else (),
        allocatable=allocatable,
        partitioning="mps" if shared else "mig",
        product=model.product,
        gpu_count=gpus,
    )
    planned = tuple(
        PlannedGpu(index=view.index, uuid=view.uuid, desired=view.desired) for view in views if view.desired
    )
    plan = PlanView(name=name, uid=f"plan-{name}", node_uid=node.uid, agent_alive=True, planned=planned, gpus=views)
    return node, plan, running


def _gpu(rng: random.Random, mix: Mix, model: GpuModel, *, node: str, index: int, running: list[PodView]) -> GpuView:
    """One GPU; the holders of its used instances are added to `running`."""
    used, idle = _cut(rng, mix, model)
    partitions = []
    for position, one in enumerate(sorted([*used, *idle])):
        holder = ""
        if one in used:
            pod = _running(rng, node, f"{node}-{index}-{position}", one)
            running.append(pod)
            holder = pod.title
        partitions.append(_partition(one, holder))
    return GpuView(
        index=index,
        uuid=f"GPU-{node}-{index}",
        model=model,
        mig_enabled=True,
        state="Ready",
        partitions=tuple(partitions),
        desired=MigDesired(layout=Layout.of([*used, *idle])),
    )


def _shared_gpu(
    rng: random.Random, mix: Mix, model: GpuModel, *, node: str, index: int, running: list[PodView]
) -> GpuView:
    """The same with slices of memory."""
    slices: list[tuple[MpsSlice, str]] = []
    free_mib = round(rng.choice(_FILLS) * shareable_mib(model.memory_mib)) if rng.random() < mix.filled else 0
    while True:
        size_gb = _size_gb(rng)
        one = slice_of_gb(size_gb)
        if one.memory_mib > free_mib:
            break
        free_mib -= one.memory_mib
        holder = ""
        if rng.random() < 2 / 3:
            pod = _holder(rng, node, f"{node}-{index}-{len(slices)}", one.resource, size_gb / 10)
            running.append(pod)
            holder = pod.title
        slices.append((one, holder))
    partitions = (
        PartitionView(resource=one.resource, memory_mib=one.memory_mib, state="Used" if holder else "Free", pod=holder)
        for one, holder in slices
    )
    desired = MpsDesired(slices=tuple(one for one, _ in slices))
    return GpuView(
        index=index,
        uuid=f"GPU-{node}-{index}",
        model=model,
        state="Ready",
        partitions=tuple(partitions),
        desired=desired if slices else None,
    )


def _size_gb(rng: random.Random) -> int:
    return rng.choices(list(_WEIGHTS_GB), weights=list(_WEIGHTS_GB.values()))[0]


def _cut(rng: random.Random, mix: Mix, model: GpuModel) -> tuple[list[Instance], list[Instance]]:
    """Used and idle instances of one GPU, placed at random until about a share of it is taken."""
    used: list[Instance] = []
    idle: list[Instance] = []
    if rng.random() >= mix.filled:
        return used, idle
    mask, tries = 0, 0
    goal = rng.choice(_FILLS) * model.slots
    while mask.bit_count() < goal and tries < 12:
        tries += 1
        profile = profile_of(rng, model)
        places = [place for place in placements_of(model)[profile] if not mask & place.blockers]
        if places:
            place = rng.choice(places)
            mask |= place.taken
            chance = rng.random()
            if chance < 0.75:
                (used if chance < 0.5 else idle).append(place.instance)
    return used, idle


def profile_of(rng: random.Random, model: GpuModel) -> str:
    names = weighed_profiles(model)
    return rng.choices(list(names), weights=list(names.values()))[0]


@cache
def weighed_profiles(model: GpuModel) -> dict[str, int]:
    """How often pods request each profile of a model; the rare ones with media engines not at all."""
    found: dict[str, int] = {}
    for shape, weight in _WEIGHTS.items():
        name = next((one.name for one in model.profiles if (one.compute_slices, one.size) == shape), "")
        if name:
            found[name] = weight
    return found


def _partition(one: Instance, holder: str) -> PartitionView:
    return PartitionView(
        resource=mig_resource(one.profile),
        profile=one.profile,
        start=one.start,
        size=one.size,
        state="Used" if holder else "Free",
        pod=holder,
    )


def _running(rng: random.Random, node: str, name: str, one: Instance) -> PodView:
    return _holder(rng, node, name, mig_resource(one.profile), one.size)


def _holder(rng: random.Random, node: str, name: str, resource: str, slices: float) -> PodView:
    requests = {"cpu": int(rng.choice((1000, 2000)) * slices), "memory": int(4 * _GIB * slices), resource: 1}
    return PodView(
        namespace="running",
        name=name,
        uid=f"running-{name}",
        node=node,
        phase="Running",
        requests=tuple(sorted(requests.items())),
        gpu=((resource, 1),),
    )


def _pod(rng: random.Random, mix: Mix, models: Sequence[GpuModel], number: int) -> PodView:
    profile = profile_of(rng, models[0] if len(models) == 1 else rng.choice(models))
    count = rng.choice((2, 2, 3, 4)) if rng.random() < mix.several else 1
    slices = float(profile.split("g.")[0]) * count
    resource = mig_resource(profile)
    if mix.mps_pods and rng.random() < mix.mps_pods:
        size_gb, count = _size_gb(rng), 1
        resource, slices = mps_resource_gb(size_gb), size_gb / 10
    cpu_milli = int(rng.choice(list(mix.cpu_milli_per_slice)) * slices)
    requests = {"cpu": cpu_milli, "memory": int(8 * _GIB * slices), resource: count}
    selector = (("pool", str(rng.randrange(mix.pools))),) if rng.random() < mix.pooled_pods else ()
    tolerant = rng.random() < mix.tainted_nodes
    return PodView(
        namespace="pending",
        name=f"pod-{number:05}",
        uid=f"pending-{number:05}",
        created=number,
        priority=rng.choice(list(mix.priorities)),
        requests=tuple(sorted(requests.items())),
        gpu=((resource, count),),
        most_mps_per_container=int(profile_of_resource(resource) is None),
        unschedulable=True,
        node_selector=selector,
        tolerations=(Toleration(key="reserved", operator="Exists"),) if tolerant else (),
    )
