"""Random clusters whose nodes and GPUs are limited by people, what becomes of them once all pods end, and remedies.

Takes a source of chance, returns a Snapshot: pins, MIG modes, cordons, pauses, labels, GPUs held whole, pods with
several profiles, whole GPUs, much CPU and gangs. `emptied` ends all pods but one, and `after_remedy` carries out what a
message asks of an administrator, for all nodes at once.
"""

import random
import re
from collections.abc import Callable
from dataclasses import replace

from benchmarks.instances import MIXES, instance
from controller.model.demand import is_partition
from controller.model.results import Unplaced
from controller.model.snapshot import Snapshot
from controller.model.views import (
    GpuView,
    MigDesired,
    MpsDesired,
    NodeView,
    PartitionView,
    PlanView,
    PodView,
    WholeDesired,
)
from crds.v1alpha1.names import Mode, Partitioning, PartitionState
from partitioning.resources import WHOLE, profile_of_resource

MORE = (
    "nvidia.com/mig-1g.10gb",
    "nvidia.com/mig-2g.20gb",
    "nvidia.com/mig-3g.40gb",
    "nvidia.com/mig-4g.40gb",
    "nvidia.com/mig-7g.80gb",
    "nvidia.com/gpu-10gb",
    "nvidia.com/gpu-40gb",
    WHOLE,
    WHOLE,
)
RARE, OFTEN = 0.15, 0.4


def limited_cluster(rng: random.Random) -> Snapshot:
    size = rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 12)
    mix = MIXES[rng.choice(sorted(MIXES))]
    found = instance(nodes=size[0], gpus=size[1], pods=size[2], seed=rng.randint(0, 10_000), mix=mix)
    servers = [_limited(rng, *one) for one in zip(found.nodes, found.plans, strict=True)]
    pending = tuple(_pending(rng, one) for one in found.pending)
    return replace(
        found,
        nodes=tuple(node for node, _ in servers),
        plans=tuple(plan for _, plan in servers),
        pending=pending,
    )


def _limited(rng: random.Random, node: NodeView, plan: PlanView) -> tuple[NodeView, PlanView]:
    gpus = tuple(_limited_gpu(rng, node, gpu) for gpu in plan.gpus)
    kind = rng.choice(("auto", "none", "other")) if rng.random() < RARE else ""
    if kind == "auto":
        node = replace(node, partitioning=Partitioning.AUTO)
    elif kind == "none":
        node = replace(node, partitioning=None)
    elif kind == "other":
        node = replace(node, partitioning=Partitioning.MPS if node.partitioning == "mig" else Partitioning.MIG)
    node = replace(node, unschedulable=rng.random() < RARE, ready=rng.random() >= RARE / 2)
    plan = replace(
        plan,
        gpus=gpus,
        paused=rng.random() < RARE / 2,
        mode=Mode.MANUAL if rng.random() < RARE / 2 else Mode.AUTO,
        by_nvidia=node.partitioning == Partitioning.MPS and rng.random() < RARE / 2,
    )
    return _advertising(node, plan), plan


def _limited_gpu(rng: random.Random, node: NodeView, gpu: GpuView) -> GpuView:
    if rng.random() < RARE:
        gpu = replace(gpu, mig_enabled=not gpu.mig_enabled, partitions=(), desired=None)
    if rng.random() < RARE / 2 and gpu.model is not None:
        gpu = replace(gpu, model=replace(gpu.model, confirmed=False))
    if not gpu.mig_enabled and rng.random() < OFTEN and not gpu.used:
        held = PartitionView(resource=WHOLE, state=PartitionState.USED, pod=f"running/whole-{node.name}-{gpu.index}")
        gpu = replace(gpu, partitions=(held,), desired=WholeDesired())
    return replace(gpu, pinned=gpu.desired is not None and rng.random() < OFTEN)


def _pending(rng: random.Random, pod: PodView) -> PodView:
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        pod = _requesting(pod, rng.choice(MORE), rng.randint(1, 6))
    if rng.random() < RARE:
        pod = replace(pod, gang=rng.choice(("one", "two")), gang_size=rng.randint(1, 3))
    return pod


def _requesting(pod: PodView, resource: str, count: int) -> PodView:
    """This as well; whole GPUs alone."""
    rest = {name: amount for name, amount in pod.requests if resource != WHOLE or not is_partition(name)}
    requests, gpu = {**rest, resource: count}, {**(dict(pod.gpu) if resource != WHOLE else {}), resource: count}
    return replace(pod, requests=tuple(sorted(requests.items())), gpu=tuple(sorted(gpu.items())))


def emptied(snapshot: Snapshot, *pods: PodView) -> Snapshot:
    """Every partition is released; what is pinned, or on a node that is not changed, stays as it is cut."""
    servers = zip(snapshot.nodes, snapshot.plans, strict=True)
    plans = [replace(plan, gpus=tuple(_released(node, gpu) for gpu in plan.gpus), planned=()) for node, plan in servers]
    nodes = tuple(_advertising(*one) for one in zip(snapshot.nodes, plans, strict=True))
    return replace(snapshot, nodes=nodes, plans=tuple(plans), pods=(), pending=pods)


def _released(node: NodeView, gpu: GpuView) -> GpuView:
    if node.partitioning == Partitioning.MIG and isinstance(gpu.desired, MpsDesired) and not gpu.pinned:
        return replace(gpu, partitions=(), desired=None)  # slices that its label does not allow end with their pods
    return replace(gpu, partitions=tuple(replace(part, state=PartitionState.FREE, pod="") for part in gpu.partitions))


def _advertising(node: NodeView, plan: PlanView) -> NodeView:
    offered = {name: count for name, count in node.allocatable.items() if not is_partition(name)}
    for part in (part for gpu in plan.gpus for part in gpu.partitions):
        offered[part.resource] = offered.get(part.resource, 0) + 1
    # What is not cut, nor to be cut, is offered whole.
    offered[WHOLE] = sum(
        any(part.resource == WHOLE for part in gpu.partitions)
        or not (gpu.mig_enabled or gpu.partitions or isinstance(gpu.desired, MigDesired | MpsDesired))
        for gpu in plan.gpus
    )
    return replace(node, allocatable=offered)


Server = tuple[NodeView, PlanView]
_NAMED = re.compile(r"GPUs? ([\d, and]+) on node ([\w-]+)")


def after_remedy(snapshot: Snapshot, pod: PodView, missed: Unplaced) -> Snapshot | None:
    """What the message says, done; None where another request or another node is the remedy."""
    if "Change the pod's node selector" in missed.message:
        pending = (replace(one, node_selector=()) if one == pod else one for one in snapshot.pending)
        return replace(snapshot, pending=tuple(pending))
    for words, remedy in REMEDIES.items():
        if words in missed.message:
            named = {
                (node, int(one)) for what, node in _NAMED.findall(missed.message) for one in re.findall(r"\d+", what)
            }
            servers = [remedy(one, pod, named) for one in zip(snapshot.nodes, snapshot.plans, strict=True)]
            servers = [(_advertising(*one), one[1]) for one in servers]
            return replace(snapshot, nodes=tuple(node for node, _ in servers), plans=tuple(plan for _, plan in servers))
    return None


def _with_plan(**fields: object) -> Callable[..., Server]:
    return lambda server, *_: (server[0], replace(server[1], **fields))


def _with_node(**fields: object) -> Callable[..., Server]:
    return lambda server, *_: (replace(server[0], **fields), server[1])


def _with(gpu: GpuView, fields: dict[str, object]) -> GpuView:
    return replace(gpu, **fields)  # type: ignore[arg-type]  # by field name


def _with_gpus(**fields: object) -> Callable[..., Server]:
    def changed(server: Server, _: PodView, named: set[tuple[str, int]]) -> Server:
        node, plan = server
        gpus = (_with(one, fields) if (node.name, one.index) in named else one for one in plan.gpus)
        return node, replace(plan, gpus=tuple(gpus))

    return changed


def _labelled(server: Server, pod: PodView, _: object) -> Server:
    mig = [profile_of_resource(name) is not None for name, _ in pod.gpu]
    label = Partitioning.MIG if all(mig) else Partitioning.AUTO if any(mig) else Partitioning.MPS
    return replace(server[0], partitioning=label), server[1]


def _mig_off(server: Server, *_: object) -> Server:
    gpus = (replace(one, mig_enabled=False, desired=None, partitions=()) for one in server[1].gpus)
    return server[0], replace(server[1], gpus=tuple(gpus))


REMEDIES: dict[str, Callable[..., Server]] = {
    "cordoned": _with_node(unschedulable=False),
    "paused": _with_plan(paused=False),
    "mode Manual": _with_plan(mode=Mode.AUTO),
    "fixed in spec.gpus": _with_gpus(pinned=False),
    "-mig 1": _with_gpus(mig_enabled=True, partitions=(), desired=None),
    "-mig 0": _with_gpus(mig_enabled=False, partitions=(), desired=None),
    "turn MIG mode off on a GPU": _mig_off,
    "not enabled for gpuplan": _labelled,
    "a node that serves this kind": _labelled,
    "not ready": _with_node(ready=True),
    "served by NVIDIA's device plugin": _with_plan(by_nvidia=False),
    "taint": _with_node(taints=()),
}
"""By words of the message, in the order in which they are looked for."""


def lifted(snapshot: Snapshot, pod: PodView) -> Snapshot:
    """Nothing limits any node or GPU, and no other pod is there."""
    servers = [_unlimited(one, pod) for one in zip(snapshot.nodes, snapshot.plans, strict=True)]
    nodes, plans = (tuple(parts) for parts in zip(*servers, strict=True))
    free = replace(pod, gang="", gang_size=0, node_selector=())
    return replace(snapshot, nodes=nodes, plans=plans, pods=(), pending=(free,))


def _unlimited(server: Server, pod: PodView) -> Server:
    node, plan = _labelled(server, pod, ())
    mig: dict[str | None, bool] = {Partitioning.MIG: True, Partitioning.MPS: False}
    gpus = (
        replace(one, pinned=False, desired=None, partitions=(), mig_enabled=mig.get(node.partitioning, one.mig_enabled))
        for one in plan.gpus
    )
    plan = replace(plan, gpus=tuple(gpus), paused=False, mode=Mode.AUTO, by_nvidia=False)
    return _advertising(replace(node, unschedulable=False, ready=True, taints=()), plan), plan
