"""Answers the kubelet's two questions on devices of one resource: which to prefer, and what a container gets.

Takes devices or ids, returns the Allocate answer (CDI names, or environment and mounts), or ids in order of preference:
first those that leave whole GPUs free, as a hint that the kubelet may ignore. The kubelet merges the answers of several
resources of one container: CDI names add up, of a variable that differs it keeps one at random, so by environment one
container can use one resource only. Pure and deterministic; never does I/O.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from kube.kubelet_api import deviceplugin_pb2 as pb
from nodeagent.handover.cdi import qualified_name
from nodeagent.handover.config import Device, DeviceKind, DeviceListStrategy
from nodeagent.handover.mps_client import client_environment, merged, pipe_directory

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"


def container_answer(
    devices: Sequence[Device], mps_root: Path, strategy: DeviceListStrategy, *, read_only_pipes: bool = True
) -> pb.ContainerAllocateResponse:
    """For MPS there is one device, or several mergeable ones of one GPU: the device lists refuse the rest."""
    first = devices[0]
    if strategy is DeviceListStrategy.CDI_CRI and first.mergeable:
        # The entries of mergeable devices of a GPU are alike, and leave their limits to this answer.
        name = pb.CDIDevice(name=qualified_name(first.id))
        return pb.ContainerAllocateResponse(cdi_devices=[name], envs=client_environment(merged(devices), mps_root))
    if strategy is DeviceListStrategy.CDI_CRI:
        # Nothing else: the entry of each device has all that belongs to it.
        return pb.ContainerAllocateResponse(cdi_devices=[pb.CDIDevice(name=qualified_name(d.id)) for d in devices])
    if first.kind is not DeviceKind.MPS:
        return pb.ContainerAllocateResponse(envs={VISIBLE_DEVICES: ",".join(d.id for d in devices)})
    pipe = str(pipe_directory(mps_root, first.gpu))
    return pb.ContainerAllocateResponse(
        envs={VISIBLE_DEVICES: first.gpu, **client_environment(merged(devices), mps_root)},
        mounts=[pb.Mount(container_path=pipe, host_path=pipe, read_only=read_only_pipes)],
    )


def preferred(
    available: Collection[str],
    must_include: Collection[str],
    size: int,
    gpu_of: Mapping[str, str],
    recorded: Collection[str] = frozenset(),
) -> tuple[str, ...]:
    """`size` ids: the required ones, then their GPUs' others, then the GPUs with the fewest left that suffice.

    Ids without a GPU (no longer advertised) are left out; then there may be fewer. Those that were handed out and not
    seen free since (`recorded`) come last, where that needs no further GPU.
    """
    chosen = sorted(must_include)[:size]
    left = sorted(id_ for id_ in set(available) - set(chosen) if id_ in gpu_of)
    begun = {gpu_of[id_] for id_ in chosen if id_ in gpu_of}
    need = size - len(chosen)
    best = _packed(left, begun, need, gpu_of, recorded)
    unrecorded = _packed([i for i in left if i not in recorded], begun, need, gpu_of, recorded)
    gpus, others = (begun.union(gpu_of[i] for i in ids) for ids in (best, unrecorded))
    return (*chosen, *(unrecorded if len(unrecorded) == len(best) and len(others) <= len(gpus) else best))


def _packed(
    left: Collection[str], begun: Collection[str], need: int, gpu_of: Mapping[str, str], recorded: Collection[str]
) -> list[str]:
    free = Counter(gpu_of[id_] for id_ in left)

    def rank(id_: str) -> tuple[bool, bool, int, str, bool, str]:
        gpu = gpu_of[id_]
        suffices = free[gpu] >= need
        # Fewest free first where one GPU is enough; else most free first, so that the container spans few GPUs.
        return (gpu not in begun, not suffices, free[gpu] if suffices else -free[gpu], gpu, id_ in recorded, id_)

    return sorted(left, key=rank)[:need]
