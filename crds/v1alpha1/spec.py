"""`spec` of a GPUPartitionPlan: what people pin (`gpus`), what the controller plans (`planned`), and the switches.

The text below a field is what `kubectl explain` shows. Bounds are part of the schema; rules across fields are CEL
with a message for the user. Overlap and capacity need the tables of a GPU model: agent, controller and CLI check them.
"""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field

from crds.v1alpha1.base import Wire, atomic, cel, list_map, rules
from crds.v1alpha1.names import Mode

MAX_GPUS = 16
MAX_INSTANCES = 16
MAX_SLICES = 16
MAX_REPLICAS = 60
MAX_DRAINED = 64
PROFILE = r"^\d+g\.\d+gb([+-]|$)"  # the cost of a rule grows with its length: the agent knows the rest
PROFILE_FORM = (
    "a profile is as nvidia-smi prints it, such as 1g.10gb or 1g.10gb+me; "
    "nvidia.com/mig-1g.10gb.me is the resource that pods request"
)


def _profile(text: str) -> str:
    """What the schema leaves to a rule, readers refuse as well."""
    if re.match(PROFILE, text) is None:
        raise ValueError(PROFILE_FORM)
    return text


class MigInstance(Wire):
    """One MIG instance, or `count` of them."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            cel(
                "!(has(self.start) && has(self.count))",
                "give start (one exact placement) or count (the agent places them), not both",
            )
        )
    )
    profile: Annotated[
        str,
        AfterValidator(_profile),
        Field(
            max_length=32,
            json_schema_extra=rules(cel(f"self.matches(r'{PROFILE}')", PROFILE_FORM)),
        ),
    ]
    """MIG profile as nvidia-smi prints it, such as 1g.10gb, 1g.10gb+me or 1g.24gb-me."""
    start: Annotated[int | None, Field(ge=0, le=15)] = None
    """First memory slice of the instance: one exact placement. The controller writes it."""
    count: Annotated[int | None, Field(ge=1, le=16)] = None
    """How many instances of this profile; the agent places them. Absent means 1."""


class MigItem(Wire):
    """A GPU cut by MIG."""

    instances: Annotated[list[MigInstance], Field(max_length=MAX_INSTANCES, json_schema_extra=atomic())]
    """The desired instances of this GPU. An empty list means MIG mode on and nothing cut."""


class MpsSliceItem(Wire):
    """One MPS slice, or `count` equal ones."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            cel(
                "has(self.memoryGB) != has(self.memoryGiB)",
                "give memoryGB (10^9 bytes, nvidia.com/gpu-<N>gb) or memoryGiB (2^30 bytes, aliyun.com/gpu-mem)",
            )
        )
    )
    memory_gb: Annotated[int | None, Field(alias="memoryGB", ge=1, le=1024)] = None
    """Memory of the slice in GB of 10^9 bytes; advertised as nvidia.com/gpu-<N>gb."""
    memory_gib: Annotated[int | None, Field(alias="memoryGiB", ge=1, le=1024)] = None
    """Memory in GiB of 2^30 bytes, advertised as so many units of aliyun.com/gpu-mem: a container gets as many as it
    requests as one slice. Memory alone is shared: threadPercent is refused."""
    count: Annotated[int | None, Field(ge=1, le=48)] = None
    """How many such slices. Absent means 1."""
    thread_percent: Annotated[int | None, Field(ge=1, le=100)] = None
    """Share of the GPU's threads that a client of this slice may use. Absent: all."""


class MpsItem(Wire):
    """A GPU shared by MPS."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            cel("has(self.slices) != has(self.replicas)", "give slices (sized shares) or replicas (equal shares)"),
            cel(
                "has(self.replicas) || !(has(self.renameByDefault) || has(self.failRequestsGreaterThanOne))",
                "renameByDefault and failRequestsGreaterThanOne concern replicas: remove them, or give replicas",
            ),
        )
    )
    slices: Annotated[list[MpsSliceItem] | None, Field(max_length=MAX_SLICES, json_schema_extra=atomic())] = None
    """Sized slices of this GPU; together they must fit its memory."""
    replicas: Annotated[int | None, Field(ge=2, le=MAX_REPLICAS)] = None
    """Equal replicas of the GPU, each with its part of memory and threads: 2 to 48, or to 60 from driver 590, or to 16
    on GPUs older than Volta. They change only while no container holds one."""
    rename_by_default: bool | None = None
    """true: replicas are nvidia.com/gpu.shared; false: nvidia.com/gpu. Absent: devicePlugin.renameByDefault, and where
    that is absent true."""
    fail_requests_greater_than_one: bool | None = None
    """false: a container may request several replicas of one GPU and gets them as one share of their sum. Absent means
    true: such a container is refused."""

    def renamed(self, *, otherwise: bool) -> bool:
        """Whether its replicas are nvidia.com/gpu.shared; `otherwise` is what holds for the node."""
        return otherwise if self.rename_by_default is None else self.rename_by_default


class WholeItem(Wire):
    """A GPU that is advertised whole."""


class Drain(Wire):
    """Partitions that no new pod gets. Their holders run on; when they have ended, the GPU is cut for the pod."""

    pod: Annotated[str, Field(max_length=320)]
    """Namespace/name of the pod that gets their place."""
    uid: Annotated[str, Field(max_length=64)]
    """UID of that pod."""
    partitions: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=128)]],
        Field(max_length=MAX_DRAINED, json_schema_extra=atomic()),
    ]
    """Their ids, as status.gpus[].partitions[].uuid has them."""


class GpuItem(Wire):
    """The desired state of one GPU of the node: exactly one of mig, mps and whole."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-map-type": "atomic",
            **rules(
                cel(
                    "(has(self.mig) ? 1 : 0) + (has(self.mps) ? 1 : 0) + (has(self.whole) ? 1 : 0) == 1",
                    "a listed GPU has exactly one of mig, mps or whole (leave the GPU out to leave it alone)",
                )
            ),
        }
    )
    index: Annotated[int, Field(ge=0, le=15)]
    """Index of the GPU on its node, as nvidia-smi shows it. A reboot can change it; with a uuid it only names the
    item."""
    uuid: Annotated[str | None, Field(max_length=64, pattern="^GPU-[0-9a-f-]+$")] = None
    """UUID of the card, which the item follows to any index. Where no GPU of the node has it this item alone fails;
    another card at its index that no item names is reported as GPUMismatch and left alone."""
    mig: MigItem | None = None
    """Cut this GPU into MIG instances."""
    mps: MpsItem | None = None
    """Share this GPU by MPS."""
    whole: WholeItem | None = None
    """Advertise this GPU whole, as nvidia.com/gpu."""
    drain: Drain | None = None
    """What of this GPU no new pod gets, for a pod that has waited long. The controller writes it; in spec.gpus, and
    while the plan is Manual or paused, it has no effect."""


class Planned(Wire):
    """The controller's part of the plan."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-map-type": "atomic"})
    gpus: Annotated[list[GpuItem], Field(max_length=MAX_GPUS, json_schema_extra=list_map("index"))]
    """What the controller planned for each GPU. An index that spec.gpus lists is ignored here."""


class DevicePluginSpec(Wire):
    """Which device plugin advertises the partitions to the kubelet, and how."""

    backend: Literal["gpuplan", "nvidia"] | None = None
    """The device plugin of this node: gpuplan, where absent; or nvidia, which has all GPUs of the node whole or as the
    same number of MPS replicas."""
    rename_by_default: bool | None = None
    """Advertise equal MPS replicas as nvidia.com/gpu.shared, not as nvidia.com/gpu. Absent: true."""


class PlanSpec(Wire):
    """The desired partitioning of one node's GPUs."""

    node_name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=253,
            json_schema_extra=rules(cel("self == oldSelf", "nodeName cannot change; create a plan for the other node")),
        ),
    ]
    """The node; equal to metadata.name and never changed."""
    mode: Mode | None = None
    """Auto: the controller may write planned. Manual: only you change the layout. Absent means Auto."""
    paused: bool | None = None
    """While true neither the controller nor the agent changes anything."""
    device_plugin: DevicePluginSpec | None = None
    """The device plugin of this node, where it is not the default."""
    gpus: Annotated[list[GpuItem] | None, Field(max_length=MAX_GPUS, json_schema_extra=list_map("index"))] = None
    """GPUs that people (or Git) pin. A GPU listed here is never planned by the controller."""
    planned: Planned | None = None
    """Written by gpuplan's controller alone, replaced whole. Do not edit: pin in spec.gpus instead."""

    @property
    def renames_replicas(self) -> bool:
        """Whether equal replicas of this node are nvidia.com/gpu.shared, where an item does not say."""
        return self.device_plugin is None or self.device_plugin.rename_by_default is not False
