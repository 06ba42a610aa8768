"""What a client of an MPS control daemon needs: the directory of its GPU's daemon, and its environment.

Agent and device plugin both put this before containers, so it is defined once. Takes the plugin's MPS root and a
device, returns paths and variables. Pure.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nodeagent.handover.config import Device

PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
GPU_DIRECTORY_CHARS = 13
"""Of "GPU-5d5ba0d6-…": short, because unix sockets lie below, and still recognisable for people."""


def mps_directory(mps_root: Path, gpu: str) -> Path:
    """Everything of one GPU's MPS daemon lies here."""
    return mps_root / gpu[:GPU_DIRECTORY_CHARS]


def pipe_directory(mps_root: Path, gpu: str) -> Path:
    return mps_directory(mps_root, gpu) / "pipe"


def merged(devices: Sequence[Device]) -> Device:
    """The one slice that a container gets for several of one GPU: their sum."""
    first = devices[0]
    percents = [device.thread_percent for device in devices if device.thread_percent is not None]
    return replace(
        first,
        memory_mib=sum(device.memory_mib for device in devices),
        thread_percent=min(sum(percents), 100) if percents else None,
    )


def client_environment(device: Device, mps_root: Path) -> dict[str, str]:
    """Limits of one slice, and where its daemon is."""
    environment = {
        PIPE_DIRECTORY: str(pipe_directory(mps_root, device.gpu)),
        # By ordinal: a client of this daemon sees its one GPU as device 0.
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={device.memory_mib}M",
    }
    # Also where it is all of them: an image may bring a value of its own.
    environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(device.thread_percent or 100)
    return environment
