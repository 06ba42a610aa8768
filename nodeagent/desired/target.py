"""Decides what a GPU is to become: from the plan's effective item to an exact target, or the reason why not.

Takes an item, the observed GPU and which of its instances are in use; returns a `Target` or a `Refusal`. Instances
given by count get exact placements from the packer that the controller uses: around what is in use, and preferably
where idle instances are already, so that the answer stays the same while it is carried out. Never touches hardware.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from crds.v1alpha1.contents import slices_of, unlimited
from crds.v1alpha1.names import Backend, Reason
from crds.v1alpha1.spec import GpuItem, MigItem, MpsItem, PlanSpec
from nodeagent.hardware.driver import MigMode, ObservedGpu, with_driver_closed
from partitioning.layouts import EMPTY, Instance, Layout, check_layout
from partitioning.models import GpuModel
from partitioning.mps import REPLICA, VOLTA, MpsSlice, check_replicas, check_slices, in_order
from partitioning.packing import DoesNotFit, Packed, check_placements, instance_of, pack


@dataclass(frozen=True, slots=True, kw_only=True)
class MigTarget:
    layout: Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsTarget:
    slices: tuple[MpsSlice, ...]
    """Sorted; equal slices are listed several times."""

    @property
    def replicas(self) -> bool:
        """Equal parts of the whole GPU, which leave no room for anything else."""
        return bool(self.slices) and self.slices[0].label == REPLICA


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeTarget:
    """Advertised as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """Unmanaged, or paused: what there is stays and is advertised."""

    planned: MigTarget | MpsTarget | WholeTarget | None = None
    """What it would become if the plan were not paused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disabled:
    """The node is not enabled any more: the hardware stays as it is, and no pod gets a device of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The item cannot be carried out on this GPU; what there is stays and is advertised."""

    reason: Reason
    message: str


ItemTarget: TypeAlias = MigTarget | MpsTarget | WholeTarget | Refusal
"""What one item requests of a GPU."""
Target: TypeAlias = ItemTarget | Unchanged | Disabled


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDefaults:
    """What holds for every item of a node."""

    driver_version: str = ""
    renames_replicas: bool = True
    """Equal replicas are nvidia.com/gpu.shared where an item does not say."""
    replicas_before_volta: bool = False
    """A person has switched on what lets pods read each other's GPU memory."""


ANY_NODE = NodeDefaults()


def target(
    item: GpuItem, gpu: ObservedGpu, in_use: Iterable[Instance], defaults: NodeDefaults = ANY_NODE
) -> ItemTarget:
    """The exact state that `item` desires of this GPU."""
    if gpu.problem:
        return Refusal(reason=Reason.UNHEALTHY, message=gpu.problem)
    if item.uuid is not None and item.uuid != gpu.uuid:
        return Refusal(
            reason=Reason.GPU_MISMATCH,
            message=f"the plan means {item.uuid}, and the card here is {gpu.uuid}: nothing is changed; "
            "correct the item's uuid or leave it out",
        )
    if item.mig is not None:
        return _mig_target(item.mig, gpu, Layout.of(in_use))
    if gpu.mig_enabled:
        return Refusal(
            reason=Reason.MIG_MODE_ENABLED,
            message="MIG mode is on, so the GPU can be neither shared by MPS nor advertised whole: plan mig.instances, "
            f"or turn the mode off: {with_driver_closed(f'nvidia-smi -i {gpu.index} -mig 0')}",
        )
    return _mps_target(item.mps, gpu, defaults) if item.mps is not None else WholeTarget()


def refused_for_all(spec: PlanSpec) -> Refusal | None:
    """What stops the whole plan before any of its items is read, where gpuplan's own plugin serves the node."""
    if spec.device_plugin is None or spec.device_plugin.backend in (None, Backend.GPUPLAN):
        return None
    return Refusal(
        reason=Reason.NOT_SUPPORTED,
        message="devicePlugin.backend nvidia is not supported by this agent: use gpuplan, or leave it out; or name the "
        "ConfigMap of NVIDIA's device plugin in the chart's value devicePlugin.config",
    )


def no_such_gpu(item: GpuItem | None, index: int, count: int) -> Refusal:
    """The plan lists a GPU that the node has not; `index` is where that is reported."""
    if item is not None and item.index != index and not item.uuid:
        why = (
            f"the GPU at index {item.index} is that of another item, by its uuid: give the item without one its card's"
        )
        return Refusal(reason=Reason.NO_SUCH_GPU, message=why)
    have = "no GPU" if not count else "1 GPU, with index 0" if count == 1 else f"{count} GPUs, 0 to {count - 1}"
    why, what = f"the node has {have}", "index"
    if item is not None and item.uuid:
        why, what = f"no GPU of this node is {item.uuid}, which the plan has with index {item.index}", "item"
    remedy = f"see the node's kernel log if a card is missing, else remove this {what} from the plan"
    return Refusal(reason=Reason.NO_SUCH_GPU, message=f"{why}: {remedy}")


def unless_mig_manager(desired: MigTarget, gpu: ObservedGpu, pod: str) -> MigTarget | Refusal:
    """Two partitioners of one GPU undo each other's work: where something must change, an administrator decides."""
    if desired.layout == gpu.layout:
        return desired
    return Refusal(reason=Reason.FOREIGN_OWNER, message=f"nothing is partitioned while {mig_manager_remedy(pod)}")


def mig_manager_remedy(pod: str) -> str:
    return (
        f"NVIDIA's mig-manager runs on this node (pod {pod}), which removes other partitions: give the node the label "
        "nvidia.com/gpu.deploy.mig-manager=false"
    )


def _mig_target(item: MigItem, gpu: ObservedGpu, in_use: Layout) -> MigTarget | Refusal:
    model = gpu.model
    if gpu.mig_mode is MigMode.NOT_SUPPORTED or model is None:
        # Workstation cards have MIG only while their displays are off.
        card = "; an RTX PRO card has it once NVIDIA's displaymodeselector has set the mode compute"
        way = card if "RTX PRO" in gpu.name.upper().replace("-", " ") else ""
        return Refusal(
            reason=Reason.MIG_NOT_SUPPORTED, message=f"{gpu.name} has no MIG: plan mps.slices or whole: {{}}{way}"
        )
    if not gpu.mig_enabled:
        pending = " (it is pending until the GPU is reset)" if gpu.mig_mode_pending is MigMode.ENABLED else ""
        return Refusal(
            reason=Reason.MIG_MODE_DISABLED,
            message=f"MIG mode is off{pending}: {with_driver_closed(f'nvidia-smi -i {gpu.index} -mig 1')}",
        )
    exact = Layout.of(instance_of(model, one.profile, one.start) for one in item.instances if one.start is not None)
    counts: dict[str, int] = {}
    for entry in item.instances:
        if entry.start is None:
            name = _name(model, entry.profile)
            counts[name] = counts.get(name, 0) + (entry.count or 1)
    problem = check_placements(model, exact)
    if problem is None:
        packed = _packed(model, exact, counts, gpu.layout, in_use)
        if isinstance(packed, Layout):
            return MigTarget(layout=packed)
        problem = packed.reason
    return Refusal(reason=Reason.INVALID_LAYOUT, message=problem)


def _packed(
    model: GpuModel, exact: Layout, counts: dict[str, int], observed: Layout, in_use: Layout
) -> Layout | DoesNotFit:
    """Exact placements for the counted ones: first so that no pod must leave, then as if the GPU were idle."""
    if not any(counts.values()):
        return exact
    idle = observed.without(in_use)
    remaining = dict(counts)
    serving: list[Instance] = []
    for instance in in_use.without(exact):
        if remaining.get(instance.profile) and check_layout(model, exact.union([*serving, instance])) is None:
            serving.append(instance)
            remaining[instance.profile] -= 1
    obstacles = [
        instance
        for instance in in_use.without([*exact, *serving])
        if check_layout(model, exact.union([*serving, instance])) is None
    ]
    answer: Packed | DoesNotFit = DoesNotFit(reason="", missing=())
    for pinned, requested, kept_clear in (
        (exact.union(serving), remaining, obstacles),
        (exact.union(serving), remaining, []),
        (exact, counts, []),
    ):
        answer = pack(
            model, pinned=pinned.union(kept_clear), requested=requested, prefer=idle if kept_clear else observed
        )
        if isinstance(answer, Packed):
            return answer.layout.without(kept_clear)
    return answer if isinstance(answer, DoesNotFit) else EMPTY


def _mps_target(item: MpsItem, gpu: ObservedGpu, defaults: NodeDefaults) -> MpsTarget | Refusal:
    model = gpu.model
    if model is None:
        return Refusal(reason=Reason.INVALID_LAYOUT, message="the GPU is not known")
    if not model.memory_mib:
        return Refusal(
            reason=Reason.NOT_SUPPORTED,
            message="the driver does not report how much memory this GPU has (it may share that of the machine), so no "
            "slice of it can be limited: plan whole: {}",
        )
    if item.slices is None:
        return _replicas_target(item, item.replicas or 0, model, defaults)
    if refused := unlimited(item):
        return Refusal(reason=Reason.NOT_SUPPORTED, message=refused)
    slices = slices_of(item, memory_mib=model.memory_mib, renamed=defaults.renames_replicas)
    problem = check_slices(model.memory_mib, model.compute_capability, slices)
    if problem is not None:
        return Refusal(reason=Reason.INVALID_LAYOUT, message=problem)
    return MpsTarget(slices=in_order(slices))


def _replicas_target(item: MpsItem, replicas: int, model: GpuModel, defaults: NodeDefaults) -> MpsTarget | Refusal:
    if model.compute_capability < VOLTA and not defaults.replicas_before_volta:
        return Refusal(
            reason=Reason.NOT_SUPPORTED,
            message="before Volta (compute capability 7.0) each pod with a replica can read and write the GPU memory "
            "of the others: use whole: {}, or let an administrator set the agent's mpsReplicasBeforeVolta",
        )
    problem = check_replicas(model.compute_capability, replicas, defaults.driver_version)
    if problem is not None:
        return Refusal(reason=Reason.INVALID_LAYOUT, message=problem)
    return MpsTarget(slices=slices_of(item, memory_mib=model.memory_mib, renamed=defaults.renames_replicas))


def _name(model: GpuModel, profile: str) -> str:
    spec = model.profile(profile)
    return spec.name if spec else profile
