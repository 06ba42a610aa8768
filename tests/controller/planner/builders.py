"""Short words for views: everything defaulted, the cluster's numbers chosen so that only GPUs are scarce."""

from collections.abc import Iterable
from dataclasses import replace

from controller.model.demand import is_partition
from controller.model.scheduling import NodeSelectorTerm, Requirement, Taint, Toleration
from controller.model.snapshot import Snapshot
from controller.model.views import (
    Desired,
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
from partitioning.models import GpuModel
from partitioning.mps import slice_of_gb
from partitioning.resources import mig_resource, mps_resource_gb
from tests.builders.models import A100

GIB = 2**30


Placed = tuple[str, int]
"""Profile and start."""


def instance(gpu_model: GpuModel, profile: str, start: int) -> Instance:
    spec = gpu_model.profile(profile)
    assert spec is not None
    return Instance(start=start, size=spec.size, profile=profile)


def layout(gpu_model: GpuModel, *placed: Placed) -> Layout:
    return Layout.of(instance(gpu_model, profile, start) for profile, start in placed)


def mig(
    index: int = 0,
    *,
    gpu_model: GpuModel = A100,
    used: Iterable[Placed] = (),
    idle: Iterable[Placed] = (),
    desired: Desired | None = None,
    holder: str = "team/holder",
    mig_enabled: bool = True,
    pinned: bool = False,
    settled: bool = True,
    under_way: bool = False,
) -> GpuView:
    """A MIG GPU; without `desired` it is settled on what it holds."""
    partitions = [
        PartitionView(
            resource=mig_resource(profile),
            profile=profile,
            start=start,
            size=instance(gpu_model, profile, start).size,
            state="Used" if held else "Free",
            id=f"MIG-{index}-{profile}-{start}",
            pod=holder if held else "",
        )
        for held, placed in ((True, used), (False, idle))
        for profile, start in placed
    ]
    return GpuView(
        index=index,
        uuid=f"GPU-{index}",
        model=gpu_model,
        mig_enabled=mig_enabled,
        state="Ready" if settled else "Changing",
        partitions=tuple(sorted(partitions, key=lambda part: part.start)),
        desired=desired or (MigDesired(layout=layout(gpu_model, *used, *idle)) if used or idle else None),
        pinned=pinned,
        settled=settled,
        under_way=under_way,
    )


def mps(
    index: int = 0,
    *,
    gpu_model: GpuModel = A100,
    used_gb: Iterable[int] = (),
    idle_gb: Iterable[int] = (),
    settled: bool = True,
    pinned: bool = False,
) -> GpuView:
    slices = [(gb, True) for gb in used_gb] + [(gb, False) for gb in idle_gb]
    partitions = tuple(
        PartitionView(
            resource=mps_resource_gb(gb),
            memory_mib=slice_of_gb(gb).memory_mib,
            state="Used" if held else "Free",
            id=f"GPU-{index}::{gb}gb::{number}",
            pod="team/holder" if held else "",
        )
        for number, (gb, held) in enumerate(slices)
    )
    desired = MpsDesired(slices=tuple(slice_of_gb(gb) for gb in sorted(gb for gb, _ in slices))) if slices else None
    return GpuView(
        index=index,
        uuid=f"GPU-{index}",
        model=gpu_model,
        partitions=partitions,
        desired=desired,
        settled=settled,
        pinned=pinned,
    )


def node(
    name: str = "node-1",
    *,
    gpus: Iterable[GpuView] = (),
    partitioning: str | None = "mig",
    cpu: int = 192_000,
    memory_gib: int = 2048,
    pods: int = 110,
    labels: dict[str, str] | None = None,
    taints: Iterable[str] = (),
    allocatable: dict[str, int] | None = None,
    product: str = "NVIDIA-A100-SXM4-40GB",
) -> NodeView:
    """Its allocatable counts the partitions of `gpus`, as after the kubelet's last status tick."""
    offered: dict[str, int] = {"cpu": cpu, "memory": memory_gib * GIB, "pods": pods}
    for gpu in gpus:
        for part in gpu.partitions:
            offered[part.resource] = offered.get(part.resource, 0) + 1
    return NodeView(
        name=name,
        uid=f"uid-{name}",
        labels=labels or {},
        taints=tuple(Taint(key=key) for key in taints),
        allocatable={**offered, **(allocatable or {})},
        partitioning=partitioning,
        product=product,
        gpu_count=len(list(gpus)),
    )


def plan_of(
    name: str = "node-1", *, gpus: Iterable[GpuView] = (), mode: str = "Auto", paused: bool = False
) -> PlanView:
    """Items of GPUs that are not pinned and have a desired state are in `planned`."""
    views = tuple(gpus)
    planned = tuple(
        PlannedGpu(index=gpu.index, uuid=gpu.uuid, desired=gpu.desired)
        for gpu in views
        if gpu.desired is not None and not gpu.pinned
    )
    return PlanView(
        name=name,
        uid=f"plan-{name}",
        mode=mode,
        paused=paused,
        node_uid=f"uid-{name}",
        agent_alive=True,
        planned=planned,
        gpus=views,
    )


def pod(
    name: str,
    *partitions: tuple[str, int] | str,
    cpu: int = 1000,
    memory_gib: int = 4,
    namespace: str = "team",
    node_name: str = "",
    priority: int = 0,
    created: int = 0,
    selector: dict[str, str] | None = None,
    affinity: Iterable[Requirement] = (),
    tolerates: Iterable[str] = (),
    most_mps: int = 1,
    unschedulable: bool = True,
    **more: object,
) -> PodView:
    """`partitions` are profiles (`3g.20gb`), MPS sizes (`10gb`) or resource names, with or without a count."""
    counted = [(one, 1) if isinstance(one, str) else one for one in partitions]
    gpu = tuple(sorted((resource(name), count) for name, count in counted))
    requests = {"cpu": cpu, "memory": memory_gib * GIB, **dict(gpu)}
    view = PodView(
        namespace=namespace,
        name=name,
        uid=f"uid-{name}",
        node=node_name,
        phase="Running" if node_name else "Pending",
        priority=priority,
        created=created,
        requests=tuple(sorted((key, amount) for key, amount in requests.items() if amount)),
        gpu=gpu,
        most_mps_per_container=most_mps if any(is_partition(name) and "mig-" not in name for name, _ in gpu) else 0,
        node_selector=tuple(sorted((selector or {}).items())),
        node_affinity=(NodeSelectorTerm(labels=tuple(affinity)),) if affinity else None,
        tolerations=tuple(Toleration(key=key, operator="Exists") for key in tolerates),
        unschedulable=unschedulable and not node_name,
    )
    return replaced(view, **more)


def replaced(view: PodView, **more: object) -> PodView:
    return replace(view, **more)  # type: ignore[arg-type]  # field names are the tests' own


def resource(text: str) -> str:
    if "/" in text:
        return text
    if "g." in text:
        return mig_resource(text)
    return mps_resource_gb(int(text.removesuffix("gb")))


def holder(node_name: str = "node-1", *partitions: tuple[str, int] | str, name: str = "holder") -> PodView:
    """A bound pod."""
    return pod(name, *partitions, node_name=node_name)


def cluster(
    *nodes: tuple[NodeView, PlanView], pods: Iterable[PodView] = (), pending: Iterable[PodView] = ()
) -> Snapshot:
    return Snapshot(
        nodes=tuple(view for view, _ in nodes),
        plans=tuple(plan for _, plan in nodes),
        pods=tuple(pods),
        pending=tuple(pending),
    )


def server(name: str = "node-1", *gpus: GpuView, **more: object) -> tuple[NodeView, PlanView]:
    """A node and its plan."""
    return node(name, gpus=gpus, **more), plan_of(name, gpus=gpus)  # type: ignore[arg-type]  # passed on by name
