"""The kind itself, and the effective item of each GPU.

Takes an object as the API server returned it; gives typed values, the item that counts for each GPU, and its
hash. Does no I/O.
"""

import hashlib
import json
from collections.abc import Mapping
from itertools import count
from types import MappingProxyType
from typing import Any, Literal

from pydantic import ConfigDict

from crds.v1alpha1.base import Wire, cel, rules
from crds.v1alpha1.names import API_VERSION, KIND
from crds.v1alpha1.spec import GpuItem, PlanSpec
from crds.v1alpha1.status import PlanStatus

NAMED_AFTER_NODE = "spec.nodeName must equal metadata.name (a plan is named after its node)"
NO_CARDS: Mapping[int, str] = MappingProxyType({})


class PlanMeta(Wire):
    """The part of metadata that gpuplan reads."""

    name: str
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None


class GPUPartitionPlan(Wire):
    """How the GPUs of one node are partitioned: what is desired (spec) and what is confirmed (status)."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            cel("self.metadata.name == self.spec.nodeName", NAMED_AFTER_NODE, fieldPath=".spec.nodeName")
        )
    )
    api_version: Literal["gpuplan.dev/v1alpha1"] = "gpuplan.dev/v1alpha1"
    kind: Literal["GPUPartitionPlan"] = "GPUPartitionPlan"
    metadata: PlanMeta
    spec: PlanSpec
    """The desired partitioning of the node's GPUs."""
    status: PlanStatus | None = None
    """What the node's agent has observed and confirmed."""


def effective_items(spec: PlanSpec, cards: Mapping[int, str] = NO_CARDS) -> dict[int, GpuItem]:
    """The item that counts for each GPU, by index. `cards` are the UUIDs of the node's GPUs by index, where known.

    An item with a uuid follows its card, one without has its index. `gpus` wins over `planned`; a GPU in neither is
    unmanaged. An item whose card is not there has its own index, unless another item or its GPU needs that: then one
    that no GPU has, so that it fails alone.
    """
    pinned, planned = spec.gpus or [], spec.planned.gpus if spec.planned else []
    index_of = {uuid: index for index, uuid in cards.items() if uuid}
    gone = [item for item in planned if item.uuid and item.uuid not in index_of]
    order = [
        *((item, index_of[item.uuid]) for item in pinned if item.uuid in index_of),
        *((item, item.index) for item in pinned if not item.uuid),
        *((item, index_of[item.uuid]) for item in planned if item.uuid in index_of),
        *((item, item.index) for item in pinned if item.uuid),
        *((item, item.index) for item in planned if not item.uuid),
        *((item, item.index) for item in gone),
    ]
    found: dict[int, GpuItem] = {}
    placed: set[int] = set()
    for item, index in order:
        if id(item) not in placed and index not in found:
            found[index] = item
            placed.add(id(item))
    of_people = {item.index for item in pinned}
    left = [item for item in (*pinned, *gone) if id(item) not in placed]
    failing = (item for item in left if any(item is one for one in pinned) or item.index not in of_people)
    free = (index for index in count() if index not in found and index not in cards)
    return dict(sorted({**found, **dict(zip(free, list(failing), strict=False))}.items()))


def plan_body(metadata: Mapping[str, Any], **parts: Any) -> dict[str, Any]:
    """As a request has it: `parts` are spec, or status."""
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, **parts}


def item_hash(item: GpuItem | dict[str, Any]) -> str:
    """planHash of an effective item: 12 hex digits of SHA-256 over its canonical JSON.

    Without `drain`, which decides who gets the partitions and not what the GPU is cut into.
    """
    wire = {key: value for key, value in (item.wire() if isinstance(item, GpuItem) else item).items() if key != "drain"}
    return hashlib.sha256(json.dumps(wire, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:12]
