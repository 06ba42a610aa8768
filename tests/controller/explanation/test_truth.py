"""What a reason promises is true: a pod that is to wait could run on the cluster if it were empty, others could not.

Random clusters, some GPUs of which are pinned or in the other MIG mode. The emptied cluster is planned with that pod
alone.
"""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.instances import MIXES, instance
from controller.model.demand import is_partition
from controller.model.reasons import UnplacedReason
from controller.model.snapshot import Snapshot
from controller.model.views import GpuView, NodeView, PlanView, PodView
from controller.planning import plan
from partitioning.resources import WHOLE
from tests.drawn import examples

WAIT = {
    UnplacedReason.WAITS_FOR_RELEASE,
    UnplacedReason.NO_CAPACITY,
    UnplacedReason.FRAGMENTED,
    UnplacedReason.NO_NODE_RESOURCES,
}
MORE = ("nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb", "nvidia.com/mig-7g.80gb", "nvidia.com/gpu-40gb", WHOLE)


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    size = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 12))
    mix, seed = MIXES[draw(st.sampled_from(sorted(MIXES)))], draw(st.integers(0, 10_000))
    found = instance(nodes=size[0], gpus=size[1], pods=size[2], seed=seed, mix=mix)
    rare = st.sampled_from([False, False, False, False, True])
    plans = tuple(
        replace(one, gpus=tuple(_limited(gpu, pinned=draw(rare), switched=draw(rare)) for gpu in one.gpus))
        for one in found.plans
    )
    pending = tuple(
        _requesting(one, draw(st.sampled_from(MORE)), draw(st.integers(1, 6))) if draw(rare) else one
        for one in found.pending
    )
    return replace(found, plans=plans, pending=pending)


def _limited(gpu: GpuView, *, pinned: bool, switched: bool) -> GpuView:
    if switched:
        return replace(gpu, pinned=pinned, mig_enabled=not gpu.mig_enabled, partitions=(), desired=None)
    return replace(gpu, pinned=pinned)


def _requesting(pod: PodView, resource: str, count: int) -> PodView:
    """This as well; whole GPUs alone."""
    rest = {name: amount for name, amount in pod.requests if resource != WHOLE or not is_partition(name)}
    requests, gpu = {**rest, resource: count}, {**(dict(pod.gpu) if resource != WHOLE else {}), resource: count}
    return replace(pod, requests=tuple(sorted(requests.items())), gpu=tuple(sorted(gpu.items())))


def emptied(snapshot: Snapshot, pod: PodView) -> Snapshot:
    """Every partition is released; what is pinned stays as it is cut."""
    plans = [replace(one, gpus=tuple(map(_released, one.gpus)), planned=()) for one in snapshot.plans]
    nodes = tuple(_advertising(*one) for one in zip(snapshot.nodes, plans, strict=True))
    return replace(snapshot, nodes=nodes, plans=tuple(plans), pods=(), pending=(pod,))


def _released(gpu: GpuView) -> GpuView:
    if not gpu.pinned:
        return replace(gpu, partitions=(), desired=None)
    return replace(gpu, partitions=tuple(replace(part, state="Free", pod="") for part in gpu.partitions))


def _advertising(node: NodeView, plan: PlanView) -> NodeView:
    offered = {name: count for name, count in node.allocatable.items() if not is_partition(name)}
    for part in (part for gpu in plan.gpus for part in gpu.partitions):
        offered[part.resource] = offered.get(part.resource, 0) + 1
    # What waits for its MIG mode is offered whole meanwhile.
    offered[WHOLE] = sum(node.partitioning == "mig" and not gpu.mig_enabled for gpu in plan.gpus)
    return replace(node, allocatable=offered)


@settings(max_examples=examples(200))
@given(clusters())
def test_who_is_to_wait_could_run_if_all_others_ended(snapshot: Snapshot) -> None:
    pods = {one.uid: one for one in snapshot.pending}
    for missed in plan(snapshot).unplaced:
        alone = bool(plan(emptied(snapshot, pods[missed.uid])).placed)
        if missed.reason in WAIT:
            assert alone, missed
        elif missed.reason is UnplacedReason.NEVER_FITS:
            assert not alone, missed
