"""Describes MPS slices: shares of one GPU with a memory limit each, and what a GPU can hold of them.

Takes sizes in GB (10^9 bytes, `nvidia.com/gpu-<N>gb`) or GiB (2^30 bytes, `aliyun.com/gpu-mem`), or a number of equal
replicas (`nvidia.com/gpu.shared`); returns slices with the limit in whole MiB that MPS enforces, and for an impossible
set one sentence with the remedy. The limit is rounded down, so that slices never promise more than the GPU has. Active
thread percentages of sized slices may add up to more than 100: MPS shares multiprocessors in time.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from partitioning.resources import ACK_MEMORY, SHARED, WHOLE, mps_resource_gb

BYTES_PER_GB = 10**9
BYTES_PER_MIB = 2**20
MIB_PER_GIB = 1024
MAX_CLIENTS = 48
"""MPS clients per GPU from Volta to CUDA 13.0 (NVIDIA's MPS guide; 60 from CUDA 13.1, which a node may not have)."""
MAX_CLIENTS_BEFORE_VOLTA = 16
MAX_CLIENTS_OF_NEWEST = 60
FIRST_DRIVER_OF_NEWEST = 590
"""Major version of the driver that came with CUDA 13.1."""
VOLTA = (7, 0)
RESERVE_MIB = 640
"""Memory of a GPU that sized slices leave alone: on an H100 the driver keeps 480 MiB of what it reports, and an MPS
server takes up to 80 MiB, whatever its clients."""
REPLICA = ""
"""The label of equal replicas: their device ids have a number only, as those of NVIDIA's device plugin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MpsSlice:
    """One share of a GPU under MPS."""

    memory_mib: int
    resource: str
    """The name under which pods request it."""
    label: str
    """Its size as people write it, `10gb` or `3gib`, or `REPLICA`; part of device ids."""
    thread_percent: int | None = None
    """Limit of active threads, 1 to 100 % of the GPU's multiprocessors; None: no limit."""
    mergeable: bool = False
    """A container may request several of one GPU, and gets them as one slice of their sum."""

    @property
    def sort_key(self) -> tuple[int, str, int]:
        """The one order of slices: small ones first; total, also where some have a thread limit and some none."""
        return (self.memory_mib, self.resource, self.thread_percent or 0)


def shareable_mib(model_memory_mib: int) -> int:
    """Memory of a GPU that its sized slices may have together."""
    return max(0, model_memory_mib - RESERVE_MIB)


def in_order(slices: Iterable[MpsSlice]) -> tuple[MpsSlice, ...]:
    """The slices in their one order, so that equal sets are equal values."""
    return tuple(sorted(slices, key=lambda share: share.sort_key))


def slice_of_gb(memory_gb: int, thread_percent: int | None = None) -> MpsSlice:
    """A slice of N GB: 10 GB is 9536 MiB."""
    return MpsSlice(
        memory_mib=memory_gb * BYTES_PER_GB // BYTES_PER_MIB,
        resource=mps_resource_gb(memory_gb),
        label=f"{memory_gb}gb",
        thread_percent=thread_percent,
    )


def units_of_gib(memory_gib: int) -> tuple[MpsSlice, ...]:
    """N GiB, of which a container that requests `aliyun.com/gpu-mem: n` gets n as one slice."""
    unit = MpsSlice(memory_mib=MIB_PER_GIB, resource=ACK_MEMORY, label="1gib", mergeable=True)
    return (unit,) * memory_gib


def replicas_of(
    model_memory_mib: int, replicas: int, *, renamed: bool = True, mergeable: bool = False
) -> tuple[MpsSlice, ...]:
    """Equal shares of memory and threads, limited as NVIDIA's device plugin limits them.

    `renamed`: they are nvidia.com/gpu.shared, else nvidia.com/gpu.
    """
    share = MpsSlice(
        memory_mib=model_memory_mib // replicas,
        resource=SHARED if renamed else WHOLE,
        label=REPLICA,
        thread_percent=100 // replicas,
        mergeable=mergeable,
    )
    return (share,) * replicas


def client_limit(compute_capability: tuple[int, int], driver_version: str = "") -> int:
    """How many processes MPS serves on one GPU at once; `driver_version` is that of the node, '' where unknown.

    NVIDIA's device plugin draws the line at capability 7.5, so that a V100 gets 16 from it; NVIDIA's MPS guide, and so
    this, at Volta, which is 7.0.
    """
    if compute_capability < VOLTA:
        return MAX_CLIENTS_BEFORE_VOLTA
    major = driver_version.partition(".")[0]
    newest = major.isdecimal() and int(major) >= FIRST_DRIVER_OF_NEWEST
    return MAX_CLIENTS_OF_NEWEST if newest else MAX_CLIENTS


def check_replicas(compute_capability: tuple[int, int], replicas: int, driver_version: str = "") -> str | None:
    """None if one GPU can have so many equal replicas, else one sentence with the number and the remedy."""
    limit = client_limit(compute_capability, driver_version)
    if replicas <= limit:
        return None
    if limit == MAX_CLIENTS_BEFORE_VOLTA:
        major, minor = compute_capability
        where = f"a GPU older than Volta (compute capability {major}.{minor})" if major else "a GPU that is not known"
    elif limit == MAX_CLIENTS:
        where = f"this GPU ({MAX_CLIENTS_OF_NEWEST} from driver {FIRST_DRIVER_OF_NEWEST})"
    else:
        where = "a GPU"
    return f"mps.replicas is {replicas}, and MPS serves {limit} clients on {where}: write {limit} or less"


def check_slices(model_memory_mib: int, compute_capability: tuple[int, int], slices: Iterable[MpsSlice]) -> str | None:
    """None if one GPU can hold all these slices at once, else one sentence with the remedy."""
    held = tuple(slices)
    if not held:
        return None
    if held[0].label == REPLICA:  # the driver is not known: the newest takes most
        return check_replicas(compute_capability, len(held), f"{FIRST_DRIVER_OF_NEWEST}")
    if compute_capability < VOLTA:
        major, minor = compute_capability
        seen = f"this one has {major}.{minor}" if major else "that of this one is unknown"
        return f"mps needs a Volta GPU or newer (compute capability 7.0), {seen}: remove mps.slices and use whole: {{}}"
    # One client may have all units.
    clients = sum(not share.mergeable for share in held)
    if clients > MAX_CLIENTS:
        return (
            f"mps.slices holds {clients} slices, and MPS serves {MAX_CLIENTS} clients per GPU: "
            f"lower count by {clients - MAX_CLIENTS} or more"
        )
    requested_mib = sum(share.memory_mib for share in held)
    if requested_mib > (most_mib := shareable_mib(model_memory_mib)):
        excess_gb = -(-(requested_mib - most_mib) * BYTES_PER_MIB // BYTES_PER_GB)
        return (
            f"mps.slices request {requested_mib} MiB together, and the GPU can share {most_mib} MiB: it has "
            f"{model_memory_mib}, and driver and MPS server need {RESERVE_MIB}. Lower memoryGB, memoryGiB or count by "
            f"{excess_gb} GB ({requested_mib - most_mib} MiB) or more"
        )
    return None
