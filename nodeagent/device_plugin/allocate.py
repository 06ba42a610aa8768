"""Answers the kubelet's two questions on devices of one resource: which to prefer, and what a container gets.

Takes devices or ids, returns the Allocate answer (environment and mounts), or ids in order of preference: first those
that leave whole GPUs free, as a hint that the kubelet may ignore. The kubelet merges the answers of several resources
of one container key by key and picks at random where they differ, so one container should request one kind only. Pure
and deterministic; never does I/O.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from kube.kubelet_api import deviceplugin_pb2 as pb
from nodeagent.handover.config import Device, DeviceKind

GPU_DIRECTORY_CHARS = (
    13  # of "GPU-5d5ba0d6-…": short, because unix sockets lie below, and still recognisable for people
)


def mps_directory(mps_root: Path, gpu: str) -> Path:
    """Everything of one GPU's MPS daemon lies here."""
    return mps_root / gpu[:GPU_DIRECTORY_CHARS]


def pipe_directory(mps_root: Path, gpu: str) -> Path:
    return mps_directory(mps_root, gpu) / "pipe"


def container_answer(devices: Sequence[Device], mps_root: Path) -> pb.ContainerAllocateResponse:
    """For MPS there is exactly one device: the device lists refuse more."""
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


def preferred(
    available: Collection[str], must_include: Collection[str], size: int, gpu_of: Mapping[str, str]
) -> tuple[str, ...]:
    """`size` ids: the required ones, then their GPUs' others, then the GPUs with the fewest left that suffice.

    Ids without a GPU (no longer advertised) are left out; then there may be fewer.
    """
    chosen = sorted(must_include)[:size]
    left = sorted(id_ for id_ in set(available) - set(chosen) if id_ in gpu_of)
    free = Counter(gpu_of[id_] for id_ in left)
    begun = {gpu_of[id_] for id_ in chosen if id_ in gpu_of}
    need = size - len(chosen)

    def rank(id_: str) -> tuple[bool, bool, int, str, str]:
        gpu = gpu_of[id_]
        suffices = free[gpu] >= need
        # Fewest free first where one GPU is enough; else most free first, so that the container spans few GPUs.
        return (gpu not in begun, not suffices, free[gpu] if suffices else -free[gpu], gpu, id_)

    return (*chosen, *sorted(left, key=rank)[:need])
