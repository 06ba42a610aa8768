"""Chooses the item of the plan that counts for each GPU of the node.

Takes one version of the plan and the GPUs, returns one `DesiredItem` per GPU and per item beyond them. An item with a
uuid follows its card. `gpus` wins over `planned`; a GPU in neither is unmanaged. Whether an item can be carried out is
decided in `target`, never here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from crds.v1alpha1.names import Backend, Mode, Reason
from crds.v1alpha1.plan import effective_items, item_hash
from crds.v1alpha1.spec import GpuItem
from nodeagent.desired.for_nvidia import config_for
from nodeagent.desired.plan import ObservedPlan
from nodeagent.desired.target import (
    ANY_NODE,
    Disabled,
    MigTarget,
    NodeDefaults,
    Refusal,
    Target,
    Unchanged,
    refused_for_all,
    target,
    unless_mig_manager,
)
from nodeagent.hardware.driver import ObservedGpu
from partitioning.layouts import Instance
from partitioning.nvidia_plugin import NodeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredItem:
    """What the plan has for one GPU, or for one that is not there. Without an item the GPU is left as it is."""

    index: int
    gpu: ObservedGpu | None
    gpu_item: GpuItem | None = None
    item_hash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DesiredItems:
    """One version of the spec against the GPUs of the node."""

    spec_version: tuple[str, int] = ("", 0)
    paused: bool = False
    disabled: bool = False
    """The node is not enabled any more: nothing of the plan is carried out."""
    refused: Refusal | None = None
    """Why nothing of the plan can be carried out."""
    items: tuple[DesiredItem, ...] = ()
    """Sorted by index."""
    defaults: NodeDefaults = ANY_NODE
    by_nvidia: bool = False
    """NVIDIA's device plugin serves the node."""
    nvidia: NodeConfig | Refusal | None = None
    """Which config it is to have, or why it cannot; None: it keeps the one that it has."""

    def target(self, item: DesiredItem, in_use: Iterable[Instance], *, mig_manager: str = "") -> Target:
        """What a GPU is to become in this pass, given the pod of NVIDIA's mig-manager if there is one."""
        if self.disabled:
            return Disabled()
        if item.gpu_item is None or item.gpu is None:
            return Unchanged()
        found = self.refused or target(item.gpu_item, item.gpu, in_use, self.defaults)
        if mig_manager and isinstance(found, MigTarget):
            found = unless_mig_manager(found, item.gpu, mig_manager)
        # A pause stops changes; that the item cannot be carried out is still reported.
        if not self.paused or isinstance(found, Refusal):
            return found
        return Unchanged(planned=found)


def desired_items(
    plan: ObservedPlan | None,
    gpus: Iterable[ObservedGpu],
    *,
    driver_version: str,
    disabled: bool,
    drives_nvidia: bool,
    replicas_before_volta: bool = False,
) -> DesiredItems:
    """Without a plan, or with one that cannot be read, every GPU is left as it is.

    `drives_nvidia`: this agent sees what it must of NVIDIA's device plugin.
    """
    by_index = {gpu.index: gpu for gpu in gpus}
    if plan is None or plan.content is None:
        return _left_alone(plan, by_index, disabled=disabled)
    spec = plan.content.spec
    items = effective_items(spec, {gpu.index: gpu.uuid for gpu in by_index.values()})
    found = [
        DesiredItem(
            index=index,
            gpu=by_index.get(index),
            gpu_item=items.get(index),
            item_hash=item_hash(items[index]) if index in items else "",
        )
        for index in sorted({*by_index, *items})
    ]
    defaults = NodeDefaults(
        driver_version=driver_version,
        renames_replicas=spec.renames_replicas,
        replicas_before_volta=replicas_before_volta,
    )
    by_nvidia = drives_nvidia and spec.device_plugin is not None and spec.device_plugin.backend == Backend.NVIDIA.value
    nvidia = config_for(spec, items, by_index.values(), defaults) if by_nvidia else refused_for_all(spec)
    return DesiredItems(
        spec_version=plan.spec_version,
        paused=bool(spec.paused),
        disabled=disabled,
        refused=nvidia if isinstance(nvidia, Refusal) else None,
        items=tuple(found),
        defaults=defaults,
        by_nvidia=by_nvidia,
        nvidia=nvidia if by_nvidia else None,
    )


def drained(plan: ObservedPlan | None, gpus: Iterable[ObservedGpu]) -> frozenset[str]:
    """Ids of partitions that no new pod gets. GPUs that people pin, and Manual or paused plans, have none."""
    spec = plan.content.spec if plan is not None and plan.content is not None else None
    if spec is None or spec.planned is None or spec.paused or spec.mode == Mode.MANUAL:
        return frozenset()
    planned = {id(item) for item in spec.planned.gpus}
    items = effective_items(spec, {gpu.index: gpu.uuid for gpu in gpus}).values()
    return frozenset(i for item in items if item.drain and id(item) in planned for i in item.drain.partitions)


def lists(plan: ObservedPlan | None, gpus: Iterable[ObservedGpu], uuid: str) -> bool:
    """Whether it makes again what the GPU with this UUID had. One that was not read may be that of any item without a
    uuid."""
    spec = plan.content.spec if plan is not None and plan.content is not None else None
    cards = {gpu.index: gpu.uuid for gpu in gpus}
    items = effective_items(spec, cards) if spec is not None else {}
    return any(cards.get(index, item.uuid or uuid) == uuid for index, item in items.items())


def _left_alone(plan: ObservedPlan | None, gpus: Mapping[int, ObservedGpu], *, disabled: bool) -> DesiredItems:
    """Without a plan that can be read."""
    problem = plan.problem if plan is not None else ""
    refused = Refusal(reason=Reason.INVALID_LAYOUT, message=f"the plan cannot be read: {problem}")
    return DesiredItems(
        spec_version=plan.spec_version if plan else ("", 0),
        disabled=disabled,
        refused=refused if problem else None,
        items=tuple(DesiredItem(index=index, gpu=gpu) for index, gpu in sorted(gpus.items())),
    )
