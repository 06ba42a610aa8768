"""`status` of a GPUPartitionPlan: what the node's agent observes, and whether the agent is alive (AgentAlive).

Written by server-side apply under two field managers; lists with one writer are atomic. Partitions that are not `Free`
count as used everywhere.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from crds.v1alpha1.base import Wire, atomic, list_map

Partitions = Annotated[
    list[Annotated[str, Field(max_length=128)]] | None, Field(max_length=64, json_schema_extra=atomic())
]
"""As sentences name them."""


class ConditionStatus(Wire):
    """One condition, in the form of metav1.Condition."""

    type: Annotated[str, Field(max_length=64)]
    """Type of the condition, such as Ready."""
    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown."""
    observed_generation: Annotated[int | None, Field(ge=0, json_schema_extra={"format": "int64"})] = None
    """metadata.generation that this condition is about."""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When status last changed, UTC."""
    reason: Annotated[str, Field(min_length=1, max_length=128, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")]
    """One CamelCase word for programs."""
    message: Annotated[str, Field(max_length=4096)]
    """One sentence for people; may be empty."""


class Summary(Wire):
    """What the printer columns show: the mode, and used and total partitions."""

    mode: Annotated[str | None, Field(max_length=32)] = None
    """spec.mode, or Auto where the plan gives none."""
    gpus: Annotated[int | None, Field(ge=0)] = None
    """GPUs of the node."""
    model: Annotated[str | None, Field(max_length=128)] = None
    """Their model; mixed where they are of several."""
    mig: Annotated[str | None, Field(max_length=32)] = None
    """MIG instances, used/total; off where MIG mode is off on every GPU that has it."""
    mps: Annotated[str | None, Field(max_length=32)] = None
    """MPS slices, used/total."""
    whole: Annotated[str | None, Field(max_length=32)] = None
    """Whole GPUs, used/total."""


class NodeFacts(Wire):
    """The node as the agent found it."""

    uid: Annotated[str | None, Field(max_length=64)] = None
    """UID of the Node object."""
    boot_id: Annotated[str | None, Field(alias="bootID", max_length=64)] = None
    """Boot id of the node."""
    driver_version: Annotated[str | None, Field(max_length=64)] = None
    """Version of the NVIDIA driver."""
    agent_version: Annotated[str | None, Field(max_length=64)] = None
    """Version of gpuplan's agent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileReport:
    """One MIG profile, as NVML reports it on this node. A status has the profiles of a model as one text: as fields
    they would fill three screens of `kubectl describe`."""

    name: str
    id: int
    """GPU instance profile id, as `nvidia-smi mig -lgip` shows it."""
    slices: int
    """Compute slices."""
    size: int
    """Width of a placement in memory slices."""
    starts: tuple[int, ...]
    """Memory slices at which it may start."""
    memory_mib: int | None = None
    max_instances: int | None = None
    """How many the driver makes at most, where there is room for more."""

    def __str__(self) -> str:
        memory = f" {self.memory_mib} MiB" if self.memory_mib is not None else ""
        most = f" most {self.max_instances}" if self.max_instances is not None else ""
        starts = ",".join(map(str, self.starts))
        return f"{self.name} id {self.id} slices {self.slices} size {self.size}{memory}{most} at {starts}"


_PROFILE = (
    r"[^ ,;]{1,32} id -?\d{1,9} slices ([1-9]|1[0-6]) size ([1-9]|1[0-6])( \d{1,9} MiB)?( most [1-9]\d{0,8})? "
    r"at (\d{1,2}(,\d{1,2}){0,15})?"
)


def profiles_of(text: str) -> list[ProfileReport]:
    """What `profiles` of a model says; its pattern was checked before."""
    return [_profile_of(entry.split(" ")) for entry in text.split("; ")] if text else []


def _profile_of(words: list[str]) -> ProfileReport:
    name, _, number, _, slices, _, size, *more = words[: words.index("at")]
    starts = words[-1]
    return ProfileReport(
        name=name,
        id=int(number),
        slices=int(slices),
        size=int(size),
        starts=tuple(int(start) for start in starts.split(",")) if starts else (),
        memory_mib=int(more[more.index("MiB") - 1]) if "MiB" in more else None,
        max_instances=int(more[more.index("most") + 1]) if "most" in more else None,
    )


class ModelReport(Wire):
    """A GPU model of this node, once per model."""

    name: Annotated[str, Field(max_length=128)]
    """Product name, as NVML reports it."""
    memory_mib: Annotated[int, Field(alias="memoryMiB")]
    """Memory of the GPU in MiB."""
    compute_capability: Annotated[str | None, Field(max_length=8)] = None
    """CUDA compute capability, such as 9.0."""
    profiles: Annotated[str | None, Field(max_length=4096, pattern=f"^{_PROFILE}(; {_PROFILE})*$")] = None
    """MIG profiles, each with its id, its compute slices, its size in memory slices and in MiB, how many the driver
    makes where there is room for more, and the memory slices at which it may start."""


class PartitionStatus(Wire):
    """A MIG instance, an MPS slice or a whole GPU that exists on the node."""

    resource: Annotated[str, Field(max_length=128)]
    """The resource that pods request."""
    uuid: Annotated[str, Field(max_length=128)]
    """Device id, as the kubelet knows it."""
    start: Annotated[int | None, Field(ge=0, le=15)] = None
    """First memory slice of a MIG instance."""
    size: Annotated[int | None, Field(ge=1, le=16)] = None
    """Memory slices of a MIG instance."""
    memory_mib: Annotated[int | None, Field(alias="memoryMiB")] = None
    """Memory of the partition in MiB."""
    state: Literal["Used", "Free", "Unknown", "Pending", "Withdrawn"]
    """Used, Free, Unknown (counts as used), Pending (not yet schedulable) or Withdrawn."""
    pod: Annotated[str | None, Field(max_length=317)] = None
    """namespace/name of the pod that holds it."""


class LastChange(Wire):
    """What the last change of a GPU made and destroyed."""

    time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When that was seen, UTC."""
    generation: Annotated[int, Field(ge=0, json_schema_extra={"format": "int64"})]
    """metadata.generation that was carried out."""
    created: Partitions = None
    """Partitions that came, as mig-1g.10gb at 6."""
    destroyed: Partitions = None
    """Partitions that went."""


class GpuStatus(Wire):
    """One GPU of the node."""

    index: Annotated[int, Field(ge=0, le=15)]
    """Index on the node."""
    uuid: Annotated[str | None, Field(max_length=96)] = None
    """UUID of the card."""
    model: Annotated[str | None, Field(max_length=128)] = None
    """Product name; left out where status.models has but one."""
    state: Literal["Unmanaged", "Changing", "Advertising", "WaitingForRelease", "Ready", "Failed"]
    """How far this GPU is with its plan."""
    plan_hash: Annotated[str | None, Field(max_length=64)] = None
    """Hash of the effective item that was last confirmed."""
    reason: Annotated[str | None, Field(max_length=128)] = None
    """One CamelCase word for the state, where that is not enough."""
    message: Annotated[str | None, Field(max_length=1024)] = None
    """What happens, or what must be done."""
    mig_mode: Literal["Enabled", "Disabled", "NotSupported"] | None = None
    """MIG mode as it is now."""
    health: Literal["Unhealthy", "Unknown"] | None = None
    """Health of the card, where it is not good."""
    missing: Partitions = None
    """Partitions of the plan that do not exist yet."""
    partitions: Annotated[list[PartitionStatus] | None, Field(max_length=64, json_schema_extra=atomic())] = None
    """Every partition that exists, used or not."""
    last_change: LastChange | None = None
    """What of its partitions changed last, by gpuplan or by others."""


class DevicePluginStatus(Wire):
    """What was advertised to the kubelet, and what of it was confirmed."""

    backend: Annotated[str | None, Field(max_length=16)] = None
    """The device plugin in charge."""
    config: Annotated[str | None, Field(max_length=253)] = None
    """Key of the ConfigMap that NVIDIA's device plugin reads."""
    device_list_strategy: Literal["envvar"] | None = None
    """envvar where containers get their devices by NVIDIA_VISIBLE_DEVICES, not by CDI names."""


class PlanStatus(Wire):
    """What the node's agent observes and has confirmed."""

    observed_generation: Annotated[int | None, Field(json_schema_extra={"format": "int64"})] = None
    """metadata.generation that the agent read last; -1 until it has read any."""
    summary: Summary | None = None
    """Mode, and used and total partitions."""
    conditions: Annotated[list[ConditionStatus] | None, Field(max_length=16, json_schema_extra=list_map("type"))] = None
    """Conditions of the whole plan."""
    node: NodeFacts | None = None
    """The node as the agent found it."""
    models: Annotated[list[ModelReport] | None, Field(max_length=8, json_schema_extra=atomic())] = None
    """GPU models of the node, from NVML."""
    gpus: Annotated[list[GpuStatus] | None, Field(max_length=16, json_schema_extra=atomic())] = None
    """Every GPU of the node."""
    device_plugin: DevicePluginStatus | None = None
    """What was advertised to the kubelet."""

    def wire(self) -> dict[str, Any]:
        """Without empty maps and lists: where server-side apply removes the last member of one that is still applied,
        the API server stores null, refuses that, and so refuses the whole status."""
        return _without_empty(super().wire())


def _without_empty(part: dict[str, Any]) -> dict[str, Any]:
    """Lists are replaced whole, so what is inside their items may be empty."""
    inner = {name: _without_empty(value) if isinstance(value, dict) else value for name, value in part.items()}
    return {name: value for name, value in inner.items() if value not in ({}, [])}
