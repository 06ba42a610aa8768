"""Which item of the plan counts for which GPU of the node.

In go one version of the plan and the GPUs, out comes one `Order` per GPU and per index that the plan lists beyond them.
`gpus` wins over `planned`; a GPU in neither is unmanaged. Whether an item can be carried out is for `desired`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from crds.v1alpha1.names import Reason
from crds.v1alpha1.plan import effective_items, item_hash
from crds.v1alpha1.spec import GpuItem
from nodeagent.desired.plan import PlanSeen
from nodeagent.desired.target import AsItIs, MigTarget, Refused, Target, beside_mig_manager, refused_for_all, target
from nodeagent.hardware.driver import ObservedGpu
from partitioning.layouts import Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the plan says of one index. Without an item the GPU is left as it is."""

    index: int
    gpu: ObservedGpu | None
    item: GpuItem | None = None
    item_hash: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """One edition of the plan against the GPUs of the node."""

    edition: tuple[str, int] = ("", 0)
    paused: bool = False
    refused: Refused | None = None
    """Why nothing of the plan can be carried out."""
    orders: tuple[Order, ...] = ()
    """Sorted by index."""

    def target(self, order: Order, in_use: Iterable[Instance], *, mig_manager: str = "") -> Target:
        """What a GPU is to become in this pass, beside that pod of NVIDIA's mig-manager if there is one."""
        if order.item is None or order.gpu is None:
            return AsItIs()
        found = self.refused or target(order.item, order.gpu, in_use)
        if mig_manager and isinstance(found, MigTarget):
            found = beside_mig_manager(found, order.gpu, mig_manager)
        # A pause stops changes; that the item cannot be carried out is still said.
        if not self.paused or isinstance(found, Refused | AsItIs):
            return found
        return AsItIs(planned=found)


def orders(plan: PlanSeen | None, gpus: Iterable[ObservedGpu]) -> Orders:
    """Without a plan, or with one that cannot be read, every GPU is left as it is."""
    by_index = {gpu.index: gpu for gpu in gpus}
    if plan is None or plan.plan is None:
        left = tuple(Order(index=index, gpu=gpu) for index, gpu in sorted(by_index.items()))
        problem = plan.problem if plan is not None else ""
        refused = Refused(reason=Reason.INVALID_LAYOUT, message=f"the plan cannot be read: {problem}")
        return Orders(edition=plan.edition if plan else ("", 0), refused=refused if problem else None, orders=left)
    spec = plan.plan.spec
    items = effective_items(spec)
    found = [
        Order(
            index=index,
            gpu=by_index.get(index),
            item=items.get(index),
            item_hash=item_hash(items[index]) if index in items else "",
        )
        for index in sorted({*by_index, *items})
    ]
    return Orders(edition=plan.edition, paused=bool(spec.paused), refused=refused_for_all(spec), orders=tuple(found))
