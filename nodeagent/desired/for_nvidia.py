"""Decides which config NVIDIA's device plugin is to have on this node, where the plan makes it the backend.

Takes the spec and its items with the observed GPUs, returns one config for all of them, or why there is none. The
plugin has one sharing entry per node, so a GPU that cannot have it refuses it for all; one that cannot be read does
not. Never touches hardware.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from crds.v1alpha1.names import Reason
from crds.v1alpha1.nvidia_backend import REMEDY, node_config
from crds.v1alpha1.spec import GpuItem, PlanSpec
from nodeagent.desired.target import NodeDefaults, Refusal, target
from nodeagent.hardware.driver import ObservedGpu
from partitioning.nvidia_plugin import NodeConfig, check


def config_for(
    spec: PlanSpec, items: Mapping[int, GpuItem], gpus: Iterable[ObservedGpu], defaults: NodeDefaults
) -> NodeConfig | Refusal | None:
    """None where the plan lists no GPU: the plugin is left as it is."""
    config = node_config(spec)
    if isinstance(config, str):
        return Refusal(reason=Reason.NOT_SUPPORTED, message=config)
    if config is None:
        return None
    for gpu in gpus:
        refused = _refused(config, items.get(gpu.index), gpu, defaults)
        if refused is not None and not gpu.problem:
            return refused
    return config


def _refused(config: NodeConfig, item: GpuItem | None, gpu: ObservedGpu, defaults: NodeDefaults) -> Refusal | None:
    if item is None:
        return Refusal(
            reason=Reason.NOT_SUPPORTED,
            message=f"GPU {gpu.index} is neither in spec.gpus nor in spec.planned, and NVIDIA's device plugin serves "
            f"all GPUs of a node alike: {REMEDY}",
        )
    found = target(item, gpu, (), defaults)
    if isinstance(found, Refusal):
        return replace(found, message=f"GPU {gpu.index}: {found.message}")
    capability = gpu.model.compute_capability if gpu.model is not None else (0, 0)
    problem = check(capability, config.replicas) if config.shared else None
    return Refusal(reason=Reason.INVALID_LAYOUT, message=f"GPU {gpu.index}: {problem}") if problem else None
