"""The kind itself, and the effective item of each GPU.

Takes an object as the API server returned it; gives typed values, the item that counts for each GPU index, and its
hash. Does no I/O.
"""

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from crds.v1alpha1.base import Wire, cel
from crds.v1alpha1.spec import GpuItem, PlanSpec
from crds.v1alpha1.status import PlanStatus


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
        json_schema_extra={
            "x-kubernetes-validations": [
                cel(
                    "self.metadata.name == self.spec.nodeName",
                    "spec.nodeName must equal metadata.name (a plan is named after its node)",
                    fieldPath=".spec.nodeName",
                )
            ]
        }
    )
    api_version: Literal["gpuplan.dev/v1alpha1"] = "gpuplan.dev/v1alpha1"
    kind: Literal["GPUPartitionPlan"] = "GPUPartitionPlan"
    metadata: PlanMeta
    spec: Annotated[PlanSpec, Field(description="The desired partitioning of the node's GPUs.")]
    status: Annotated[PlanStatus | None, Field(description="What the node's agent has observed and confirmed.")] = None


def effective_items(spec: PlanSpec) -> dict[int, GpuItem]:
    """The item that counts for each listed GPU index: `gpus` wins over `planned`; an index in neither is unmanaged."""
    items = {item.index: item for item in (spec.planned.gpus if spec.planned else [])}
    items.update({item.index: item for item in spec.gpus or []})
    return dict(sorted(items.items()))


def item_hash(item: GpuItem | dict[str, Any]) -> str:
    """planHash of an effective item: 12 hex digits of SHA-256 over its canonical JSON."""
    wire = item.wire() if isinstance(item, GpuItem) else item
    return hashlib.sha256(json.dumps(wire, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:12]
