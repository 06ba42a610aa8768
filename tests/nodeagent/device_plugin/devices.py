"""Devices of three GPUs as the agent writes them into a config, and what the plugin answers, as sentences."""

from collections.abc import Callable
from typing import cast

import grpc
import pytest

from nodeagent.handover.config import Device, DeviceKind, Loaded, PluginConfig

MIG = "nvidia.com/mig-1g.10gb"
SLICE = "nvidia.com/gpu-10gb"
WHOLE = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
GPU_A, GPU_B, GPU_C = (f"GPU-{letter * 8}-1111-2222-3333-444444444444" for letter in "abc")


def mig(number: int, gpu: str = GPU_A) -> Device:
    return Device(id=f"MIG-{number}", resource=MIG, gpu=gpu, kind=DeviceKind.MIG, memory_mib=9728)


def mps(number: int, gpu: str = GPU_B, thread_percent: int | None = None) -> Device:
    return Device(
        id=f"{gpu}::10gb::{number}",
        resource=SLICE,
        gpu=gpu,
        kind=DeviceKind.MPS,
        memory_mib=9536,
        thread_percent=thread_percent,
    )


def unit(number: int, gpu: str = GPU_B) -> Device:
    """One replica of four, of which a container may request several."""
    return Device(
        id=f"{gpu}::{number}",
        resource=SHARED,
        gpu=gpu,
        kind=DeviceKind.MPS,
        memory_mib=20389,
        thread_percent=25,
        mergeable=True,
    )


def whole(gpu: str = GPU_C) -> Device:
    return Device(id=gpu, resource=WHOLE, gpu=gpu, kind=DeviceKind.WHOLE)


ALL = PluginConfig.of([mig(0), mig(1), mps(0), mps(1, thread_percent=25), whole()])


def refusal(call: Callable[[], object], code: grpc.StatusCode = grpc.StatusCode.FAILED_PRECONDITION) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    call_error = cast(grpc.Call, caught.value)
    assert call_error.code() is code
    return call_error.details() or ""


def messages(loaded: Loaded | None) -> str:
    return "; ".join(problem.message for problem in loaded.errors) if loaded else ""
