"""Parses raw JSON of a GPUPartitionPlan into a PlanReading.

Takes the object as the API server sent it and returns everything that follows from the object alone: the effective item
of each reported GPU and how far its agent is with it (`Stage`), what users wrote, and the conditions that the
controller itself writes. What depends on the clock, the Node or the agent's Lease is added by `controller.cache.plans`.
GPU models come from NVML's report in the status, completed by the catalogue.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any

from controller.api.plan_items import desired_of, drain_of
from controller.api.reading import Unreadable, readable
from controller.model.views import Desired, GpuView, PartitionView, PlannedGpu
from crds.v1alpha1.names import Backend, Condition, GpuState, Mode
from crds.v1alpha1.nvidia_backend import node_config
from crds.v1alpha1.plan import GPUPartitionPlan, effective_items, item_hash
from crds.v1alpha1.spec import GpuItem, PlanSpec
from crds.v1alpha1.status import (
    ConditionStatus,
    GpuStatus,
    ModelReport,
    PartitionStatus,
    PlanStatus,
    ProfileReport,
    profiles_of,
)
from partitioning.models import GpuModel, ProfileSpec, model_for_name, model_for_product, model_from_report
from partitioning.nvidia_plugin import NodeConfig
from partitioning.profiles import never_together
from partitioning.resources import profile_of_resource
from partitioning.states import enumerable


class Stage(Enum):
    """How far the agent is with one GPU, by its status."""

    SETTLED = "settled"
    WORKING = "working"
    STOPPED = "stopped"
    """Failed, or waiting for a pod to leave: what is planned does not come by itself soon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One reported GPU. `view` still lacks what depends on time: settled, under_way, backing_off."""

    view: GpuView
    item_hash: str
    """Hash of its effective item; '' where it is unmanaged."""
    stage: Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionReading:
    """One condition of the status."""

    status: str
    reason: str
    last_transition_time: str


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class PlanReading:
    """A plan, as far as the object alone shows."""

    name: str
    uid: str
    version: str
    """resourceVersion."""
    generation: int
    deleting: bool
    mode: str
    paused: bool
    authored: bool
    """People wrote something into the spec: such a plan is never deleted by us."""
    pinned: tuple[int, ...]
    """Present indexes of the GPUs that people pin."""
    planned: tuple[PlannedGpu, ...]
    """With the indexes as they are stored, which are not those of cards that moved since."""
    stale_items: tuple[int, ...]
    """Stored indexes of planned GPUs that users have pinned since: ignored by rule, and to be dropped."""
    planned_json: str
    """`spec.planned.gpus` as it is stored, so that items that did not change are written back byte for byte."""
    observed_generation: int
    node_uid: str
    handed_back: bool
    """Its agent has reported that no pod holds a device of the node, or can get one."""
    relabels: bool
    gpus: tuple[GpuReading, ...]
    alive: ConditionReading | None
    ready: ConditionReading | None
    served_by_dra: ConditionReading | None = None
    conditions: tuple[tuple[str, str, str], ...] = ()
    """Type, status and reason of each, by type."""
    by_nvidia: bool = False
    """NVIDIA's device plugin is its backend."""
    nvidia: NodeConfig | None = None
    """The config that NVIDIA's plugin is to have; None also where the plan has none that it can do."""
    named_config: str = ""
    """The key with which the agent says that the node may be labelled."""

    @property
    def planned_items(self) -> dict[int, dict[str, Any]]:
        """`spec.planned.gpus` by index."""
        return {item["index"]: item for item in json.loads(self.planned_json)}

    @property
    def in_use(self) -> frozenset[tuple[str, str]]:
        """GPU uuid and id of each partition that is not proved free."""
        return frozenset((gpu.view.uuid, p.id) for gpu in self.gpus for p in gpu.view.partitions if p.used)


def read_plan(raw: Mapping[str, Any]) -> PlanReading | Unreadable:
    """The reading of a plan."""
    return readable("plan", raw, _plan)


def _plan(raw: Mapping[str, Any]) -> PlanReading:
    plan = GPUPartitionPlan.read(raw)
    spec, status = plan.spec, plan.status or PlanStatus()
    reported = _ReportedGpus(spec, status)
    conditions = {condition.type: condition for condition in status.conditions or ()}
    items = effective_items(spec, {index: gpu.uuid or "" for index, gpu in reported.by_index.items() if gpu.uuid})
    planned = sorted(spec.planned.gpus if spec.planned else (), key=lambda item: item.index)
    pinned = frozenset(index for index, item in items.items() if any(item is one for one in spec.gpus or ()))
    plugin, by_nvidia = status.device_plugin, _backend(spec) == Backend.NVIDIA.value
    nvidia = node_config(spec) if by_nvidia else None
    return PlanReading(
        name=plan.metadata.name,
        uid=plan.metadata.uid,
        version=plan.metadata.resource_version,
        generation=plan.metadata.generation,
        deleting=plan.metadata.deletion_timestamp is not None,
        mode=spec.mode or Mode.AUTO,
        paused=bool(spec.paused),
        authored=_authored(spec),
        pinned=tuple(sorted(pinned)),
        planned=tuple(
            PlannedGpu(index=item.index, uuid=item.uuid or "", desired=reported.desired(item), drain=drain_of(item))
            for item in planned
        ),
        stale_items=_stale_items(spec, [item.index for item in planned if reported.index(item) in pinned]),
        planned_json=json.dumps([item.wire() for item in planned], separators=(",", ":")),
        observed_generation=status.observed_generation or 0,
        node_uid=(status.node.uid or "") if status.node else "",
        handed_back=_holds(conditions.get(Condition.HANDED_BACK)),
        relabels=_relabels(spec, status),
        by_nvidia=by_nvidia,
        nvidia=nvidia if isinstance(nvidia, NodeConfig) else None,
        named_config=(plugin.config or "") if plugin is not None and plugin.backend == Backend.NVIDIA.value else "",
        gpus=tuple(
            _gpu(gpu, items.get(index), reported, pinned=index in pinned)
            for index, gpu in sorted(reported.by_index.items())
        ),
        alive=_condition(conditions.get(Condition.AGENT_ALIVE)),
        ready=_condition(conditions.get(Condition.READY)),
        served_by_dra=_condition(conditions.get(Condition.SERVED_BY_DRA)),
        conditions=tuple(sorted((kind, found.status, found.reason) for kind, found in conditions.items())),
    )


def _stale_items(spec: PlanSpec, indexes: list[int]) -> tuple[int, ...]:
    """Those that may be dropped: of a Manual or paused plan the admission policy lets pinned indexes go, no more."""
    frozen, listed = spec.mode == Mode.MANUAL or spec.paused, {item.index for item in spec.gpus or ()}
    return tuple(index for index in indexes if index in listed or not frozen)


class _ReportedGpus:
    """The GPUs of a node as its status reports them, to read items by."""

    def __init__(self, spec: PlanSpec, status: PlanStatus) -> None:
        self.by_index = {gpu.index: gpu for gpu in status.gpus or ()}
        self._index_of = {gpu.uuid: gpu.index for gpu in status.gpus or () if gpu.uuid}
        self._models = {report.name: _model(report.model_dump_json()) for report in status.models or ()}
        self._memory_mib = {report.name: report.memory_mib for report in status.models or ()}
        unnamed = not any(gpu.model for gpu in self.by_index.values())
        self._only = next(iter(self._models), "") if unnamed and len(self._models) == 1 else ""
        self._renamed = spec.renames_replicas

    def index(self, item: GpuItem) -> int:  # at which its card is now
        return self._index_of.get(item.uuid or "", item.index)

    def model(self, index: int) -> GpuModel | None:
        name = self._name(index)
        return self._models.get(name) or model_for_name(name)

    def desired(self, item: GpuItem) -> Desired:
        memory_mib = self._memory_mib.get(self._name(self.index(item)), 0)
        return desired_of(item, model=self.model(self.index(item)), memory_mib=memory_mib, renamed=self._renamed)

    def _name(self, index: int) -> str:
        return (self.by_index[index].model or self._only) if index in self.by_index else ""


def _holds(found: ConditionStatus | None) -> bool:
    return found is not None and found.status == "True"


def _condition(found: ConditionStatus | None) -> ConditionReading | None:
    if found is None:
        return None
    return ConditionReading(
        status=found.status,
        reason=found.reason,
        last_transition_time=found.last_transition_time,
    )


def _relabels(spec: PlanSpec, status: PlanStatus) -> bool:
    there = status.device_plugin
    return not spec.renames_replicas and (_backend(spec) or (there and there.backend)) == Backend.NVIDIA.value


def _backend(spec: PlanSpec) -> str | None:
    return spec.device_plugin.backend if spec.device_plugin is not None else None


def _authored(spec: PlanSpec) -> bool:
    return any(part is not None for part in (spec.mode, spec.paused, spec.device_plugin)) or bool(spec.gpus)


def _gpu(gpu: GpuStatus, item: GpuItem | None, reported: _ReportedGpus, *, pinned: bool) -> GpuReading:
    digest = item_hash(item) if item is not None else ""
    view = GpuView(
        index=gpu.index,
        uuid=gpu.uuid or "",
        model=reported.model(gpu.index),
        mig_enabled=gpu.mig_mode == "Enabled",
        state=gpu.state,
        reason=gpu.reason or "",
        partitions=tuple(_partition(partition) for partition in gpu.partitions or ()),
        desired=reported.desired(item) if item is not None else None,
        pinned=pinned,
        settled=False,
    )
    return GpuReading(view=view, item_hash=digest, stage=_stage(gpu, digest))


def _stage(gpu: GpuStatus, digest: str) -> Stage:
    state = GpuState(gpu.state)
    if state in (GpuState.FAILED, GpuState.WAITING_FOR_RELEASE):
        return Stage.STOPPED
    if digest:
        settled = state is GpuState.READY and gpu.plan_hash == digest
    else:
        # Whatever the plan contained before, an unlisted GPU is left as it is: it need not be confirmed again.
        settled = state in (GpuState.UNMANAGED, GpuState.READY)
    return Stage.SETTLED if settled else Stage.WORKING


def _partition(partition: PartitionStatus) -> PartitionView:
    known = partition.start is not None  # a size without a start gives no placement
    return PartitionView(
        resource=partition.resource,
        profile=profile_of_resource(partition.resource) or "",
        start=partition.start or 0,
        size=(partition.size or 0) if known else 0,
        memory_mib=partition.memory_mib or 0,
        state=partition.state,
        id=partition.uuid,
        pod=partition.pod or "",
    )


@lru_cache(maxsize=256)
def _model(report_json: str) -> GpuModel:
    """One value per distinct report: thousands of nodes share it, and planning caches its tables by it."""
    report = ModelReport.model_validate_json(report_json, strict=False)
    catalogued = model_for_name(report.name) or model_for_product(report.name.replace(" ", "-"))
    profiles = profiles_of(report.profiles or "")
    if catalogued is not None and not profiles:
        # NVML reports profiles only while MIG mode is on.
        return replace(catalogued, memory_mib=report.memory_mib)
    specs = [_profile(position, profile, catalogued) for position, profile in enumerate(profiles)]
    model = model_from_report(report.name, report.memory_mib, specs, _capability(report.compute_capability))
    if enumerable(model):
        return model
    # Nothing is planned with a model without placements, and no table is made of it.
    return replace(model, confirmed=False, profiles=tuple(replace(spec, starts=()) for spec in model.profiles))


def _profile(position: int, report: ProfileReport, catalogued: GpuModel | None) -> ProfileSpec:
    twin = catalogued.profile(report.name) if catalogued else None
    return ProfileSpec(
        name=report.name,
        profile_id=report.id,
        nvml_index=twin.nvml_index if twin else 1000 + position,
        compute_slices=report.slices,
        size=report.size,
        memory_mib=report.memory_mib,
        sm_count=twin.sm_count if twin else None,
        max_instances=report.max_instances or _most(report, twin),
        starts=tuple(sorted(report.starts)),
    )


def _most(report: ProfileReport, twin: ProfileSpec | None) -> int:
    """The catalogue's count is that of the places it knows."""
    if twin is not None and twin.starts == tuple(sorted(report.starts)):
        return twin.max_instances
    return 1 if never_together(report.name, report.name) else len(report.starts)


def _capability(text: str | None) -> tuple[int, int] | None:
    major, _, minor = (text or "").partition(".")
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else None
