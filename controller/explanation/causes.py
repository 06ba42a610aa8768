"""Finds the nodes and GPUs that could hold a request but are left out of planning, and why.

Takes the stock of a node and the partitions of a request, returns causes. They are data; `remedies` has the words.
Never looks at what is free on GPUs that may be changed.
"""

from typing import NamedTuple

from controller.explanation.capability import most_on_empty
from controller.model.demand import Wants, kind_of
from controller.planner.inventory.stock import GpuStock, Ineligible, NodeStock
from crds.v1alpha1.names import Partitioning
from partitioning.resources import WHOLE, MigRequest


class Cause(NamedTuple):
    """One node, or one GPU of it, that is left out."""

    node: int
    name: str
    gpu: int | None
    ineligible: Ineligible
    given: str = ""
    """What only this node shows: its label, what its GPUs are shared into, or the API server's sentence."""


def causes_of(stock: NodeStock, number: int, wants: Wants) -> list[Cause]:
    """Why a node that could hold the partitions, or some of its GPUs, are left out."""
    name = stock.node.name
    if stock.ineligible is not None:
        return [Cause(number, name, None, stock.ineligible, stock.refusal)]
    if not _label_allows(stock, wants):
        return [Cause(number, name, None, Ineligible.OTHER_LABEL, stock.node.partitioning or "")]
    if _all_eligible(stock, wants):
        return []
    found = ((gpu, _why_ineligible(gpu, wants)) for gpu in stock.gpus)
    return [
        Cause(number, name, gpu.view.index, why, gpu.equal_shares.slices[0].resource if gpu.equal_shares else "")
        for gpu, why in found
        if why is not None
    ]


def is_meant_for(stock: NodeStock, wants: Wants) -> bool:
    """Whether the node is there for this kind of partition, by its label."""
    if any(name == WHOLE for name, _ in wants):
        return True  # whole GPUs need no label
    return stock.ineligible is not Ineligible.NOT_ENABLED and _label_allows(stock, wants)


def _label_allows(stock: NodeStock, wants: Wants) -> bool:
    """Whether the node is labelled for this kind of partition; of a node without the label it is not known."""
    if stock.node.partitioning is None:
        return True
    needed = {_kind_for(name) for name, _ in wants if name != WHOLE}
    return stock.node.partitioning == Partitioning.AUTO or needed <= {stock.node.partitioning}


def _all_eligible(stock: NodeStock, wants: Wants) -> bool:
    """Whether every GPU of the node may be cut for this request: quick, since it is the rule."""
    needed = {_kind_for(name) for name, _ in wants}
    return all(gpu.ineligible is None and gpu.kind in needed for gpu in stock.gpus)


def _why_ineligible(gpu: GpuStock, wants: Wants) -> Ineligible | None:
    """Why a GPU that could hold it, empty, is left out for this request; None if it is not, or could not."""
    if gpu.model is not None and not any(most_on_empty(gpu.model, name) for name, _ in wants):
        return None
    if gpu.ineligible is Ineligible.MIG_MODE_DISABLED and all(name == WHOLE for name, _ in wants):
        return None  # it is advertised whole
    needed = {_kind_for(name) for name, _ in wants}
    if gpu.ineligible is Ineligible.NO_MIG_PLACEMENTS and Partitioning.MIG not in needed:
        return Ineligible.MIG_MODE_ENABLED  # slices and whole GPUs need no placements
    if gpu.ineligible is not None:
        return gpu.ineligible
    if gpu.kind not in needed:
        return Ineligible.MIG_MODE_ENABLED if gpu.kind is Partitioning.MIG else Ineligible.MIG_MODE_DISABLED
    return None


def _kind_for(resource: str) -> Partitioning:
    return Partitioning.MIG if isinstance(kind_of(resource), MigRequest) else Partitioning.MPS
