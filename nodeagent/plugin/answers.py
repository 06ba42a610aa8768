"""What a container gets for its devices: environment and mounts of the Allocate answer.

In go devices of one resource, out comes the kubelet's message. Pure. The kubelet merges the answers of several
resources of one container key by key and picks at random where they differ, so one container should ask for one kind.
"""

from collections.abc import Sequence
from pathlib import Path

from kube.kubelet_api import deviceplugin_pb2 as pb
from nodeagent.plugin.config import Device, DeviceKind

GPU_DIRECTORY_CHARS = 13  # of "GPU-5d5ba0d6-…": short, because unix sockets lie below, and still telling for people


def mps_directory(mps_root: Path, gpu: str) -> Path:
    """Everything of one GPU's MPS daemon lies here."""
    return mps_root / gpu[:GPU_DIRECTORY_CHARS]


def pipe_directory(mps_root: Path, gpu: str) -> Path:
    return mps_directory(mps_root, gpu) / "pipe"


def container_answer(devices: Sequence[Device], mps_root: Path) -> pb.ContainerAllocateResponse:
    """For MPS there is exactly one device: the offer refuses more."""
    first = devices[0]
    if first.kind is not DeviceKind.MPS:
        return pb.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(d.id for d in devices)})
    pipe = str(pipe_directory(mps_root, first.gpu))
    envs = {
        "NVIDIA_VISIBLE_DEVICES": first.gpu,
        "CUDA_MPS_PIPE_DIRECTORY": pipe,
        # By ordinal: a client of this daemon sees its one GPU as device 0.
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={first.memory_mib}M",
    }
    if first.thread_percent is not None:
        envs["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(first.thread_percent)
    return pb.ContainerAllocateResponse(envs=envs, mounts=[pb.Mount(container_path=pipe, host_path=pipe)])
