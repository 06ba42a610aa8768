"""Builds the plan's status from the outcomes of a pass: summary, models, GPUs, partitions, device plugin.

Takes outcomes, returns the JSON to apply; `conditions` makes the conditions. Cuts everything to the sizes that the
schema admits, because a refused status informs no one. Pure but for the time, which is passed in.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

from pydantic import ValidationError

from crds.v1alpha1.names import GpuState, Mode, Reason
from crds.v1alpha1.status import (
    DevicePluginStatus,
    GpuStatus,
    LastChange,
    ModelReport,
    NodeFacts,
    PartitionStatus,
    PlanStatus,
    ProfileReport,
    Summary,
)
from nodeagent.desired.plan import ObservedPlan
from nodeagent.handover.config import DeviceKind, DeviceListStrategy
from nodeagent.hardware.driver import Health, MigMode, ObservedGpu
from nodeagent.outcome.pass_result import GpuOutcome, PartitionOutcome, PassResult
from nodeagent.report.conditions import conditions
from nodeagent.report.last_change import last_change
from partitioning.models import GpuModel, ProfileSpec
from partitioning.placements import limits_of

_ILL: dict[Health, Literal["Unhealthy", "Unknown"]] = {Health.UNHEALTHY: "Unhealthy", Health.UNKNOWN: "Unknown"}
MOST_GPUS = 16
MOST_MODELS = 8
MOST_PARTITIONS = 64
MOST_MESSAGE_CHARS = 1024
SAID_BY = {GpuState.UNMANAGED: Reason.UNMANAGED, GpuState.READY: Reason.CONFIRMED}
"""States that need no reason but this one."""


def plan_status(result: PassResult, plan: ObservedPlan, *, version: str, now: str) -> dict[str, Any]:
    """The status to apply. Times of what did not change are those that the API holds. `version` is this agent's."""
    live = plan.status
    result = replace(result, outcomes=tuple(_reportable(outcome) for outcome in result.outcomes))
    models = _models(result.observation.gpus)
    alone = len(models) == 1 and {gpu.name for gpu in result.observation.gpus} == {models[0].name}
    return PlanStatus(
        observed_generation=plan.generation,
        summary=_summary(result, plan),
        conditions=conditions(result, live.get("conditions") or [], generation=plan.generation, now=now),
        node=_node(result, version),
        models=models,
        gpus=[
            _gpu(outcome, last_change(outcome, live.get("gpus") or [], plan.generation, now), named=not alone)
            for outcome in result.outcomes[:MOST_GPUS]
        ],
        device_plugin=_device_plugin(result),
    ).wire()


def _node(result: PassResult, agent_version: str) -> NodeFacts:
    node = result.observation.readings.node
    return NodeFacts(
        uid=node.uid if node else None,
        boot_id=(node.boot_id or None) if node else None,
        driver_version=result.observation.driver_version[:64] or None,
        agent_version=agent_version,
    )


def _summary(result: PassResult, plan: ObservedPlan) -> Summary:
    found = [partition for outcome in result.outcomes for partition in outcome.partitions]
    gpus = result.observation.gpus
    modes = {gpu.mig_mode for gpu in gpus if not gpu.problem}
    uncut = "0/0" if MigMode.ENABLED in modes else "off" if MigMode.DISABLED in modes else None
    models = {gpu.model.key if gpu.model is not None else gpu.name for gpu in gpus} - {""}

    def used_of(kind: DeviceKind) -> str | None:
        mine = [entry for entry in found if entry.partition.kind is kind]
        return f"{sum(entry.used for entry in mine)}/{len(mine)}" if mine else None

    return Summary(
        mode=(plan.content.spec.mode or Mode.AUTO) if plan.content is not None else None,
        gpus=len(gpus),
        model=("mixed" if len(models) > 1 else next(iter(models), "")[:128]) or None,
        mig=used_of(DeviceKind.MIG) or uncut,
        mps=used_of(DeviceKind.MPS),
        whole=used_of(DeviceKind.WHOLE),
    )


def _models(gpus: Iterable[ObservedGpu]) -> list[ModelReport]:
    """One of each name: drivers up to 535 name the profiles of a GPU only while its MIG mode is on."""
    found: dict[str, ModelReport] = {}
    for gpu in gpus:
        with suppress(ValueError):
            report = _model(gpu.name, gpu.model) if gpu.model is not None and not gpu.problem else None
            if report is not None and (gpu.name not in found or (report.profiles and not found[gpu.name].profiles)):
                found[gpu.name] = report
    return [report for _, report in sorted(found.items())][:MOST_MODELS]


def _model(name: str, model: GpuModel) -> ModelReport:
    major, minor = model.compute_capability
    limits = limits_of(model)
    return ModelReport(
        name=name[:128],
        memory_mib=model.memory_mib,
        compute_capability=f"{major}.{minor}" if major else None,
        profiles="; ".join(str(_profile(spec, limits.get(spec.name))) for spec in model.profiles if spec.size) or None,
    )


def _profile(spec: ProfileSpec, most: int | None) -> ProfileReport:
    return ProfileReport(
        name=spec.name,
        id=spec.profile_id,
        slices=spec.compute_slices,
        size=spec.size,
        starts=tuple(spec.starts),
        memory_mib=spec.memory_mib,
        max_instances=most,
    )


def _reportable(outcome: GpuOutcome) -> GpuOutcome:
    """An outcome that the schema admits: an answer that was never seen before must not silence the other GPUs."""
    try:
        # One with a later index has no place in the list, and is in the conditions.
        _gpu(replace(outcome, index=0))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        message = f"what the driver reports of this GPU has no place in the status, report it as a bug: {wrong}"
        return replace(outcome, state=GpuState.FAILED, reason=Reason.DRIVER_ERROR, message=message, partitions=())
    return outcome


def _gpu(outcome: GpuOutcome, change: LastChange | None = None, *, named: bool = True) -> GpuStatus:
    gpu = outcome.gpu
    return GpuStatus(
        index=outcome.index,
        uuid=gpu.uuid if gpu else None,
        model=(gpu.name or None) if gpu and named else None,
        state=outcome.state.value,
        plan_hash=outcome.plan_hash or None,
        reason=outcome.reason.value if outcome.reason is not SAID_BY.get(outcome.state) else None,
        message=outcome.message[:MOST_MESSAGE_CHARS] or None,
        mig_mode=gpu.mig_mode.value if gpu and not gpu.problem else None,
        health=_ILL.get(gpu.health) if gpu else None,
        missing=list(outcome.missing[:MOST_PARTITIONS]) or None,
        partitions=[_partition(entry) for entry in outcome.partitions[:MOST_PARTITIONS]] or None,
        last_change=change,
    )


def _partition(entry: PartitionOutcome) -> PartitionStatus:
    partition = entry.partition
    return PartitionStatus(
        resource=partition.resource,
        uuid=partition.id,
        start=partition.placed.start if partition.placed else None,
        size=partition.placed.size if partition.placed else None,
        memory_mib=partition.memory_mib or None,
        state=entry.state.value,
        pod=entry.pod or None,
    )


def _device_plugin(result: PassResult) -> DevicePluginStatus:
    advertised = result.work.advertised
    if (nvidia := advertised.nvidia_plugin) is not None:
        return DevicePluginStatus(backend="nvidia", config=nvidia.key or None)
    by_environment = advertised.config.device_list_strategy is DeviceListStrategy.ENVVAR
    return DevicePluginStatus(backend="gpuplan", device_list_strategy="envvar" if by_environment else None)
