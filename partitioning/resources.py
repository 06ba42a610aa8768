"""Names the extended resources by which pods request GPUs, and reads those names.

Takes a profile or a size, returns the resource name, and the reverse. NVIDIA's device plugin writes every `+` of a
profile as a dot and keeps `-` (`1g.24gb+me.all` is `nvidia.com/mig-1g.24gb.me.all`, `1g.24gb-me` keeps its dash).
Never reads quantities: the meaning of a count is described at each kind of request.
"""

import re
from dataclasses import dataclass
from typing import TypeAlias

from partitioning.profiles import MigProfile, ProfileError

WHOLE = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
ACK_MEMORY = "aliyun.com/gpu-mem"

_MIG_PREFIX = "nvidia.com/mig-"
NO_MEMORY = "nvidia.com/gpu-0gb"

_MPS_GB = re.compile(r"nvidia\.com/gpu-([1-9]\d*)gb", re.ASCII)
_LIKE_OURS = re.compile(
    r"nvidia\.com/(mig-|gpu-|gpus?$|gpu\.\d|gpumem|gpucores|.*\dg\.\d+gb)"
    r"|(?!nvidia\.com/)[^/]*nvidia[^/]*/(gpus?$|gpu-\d|mig-\d)",
    re.ASCII | re.IGNORECASE,
)
# The last part is the suffix that NVIDIA's plugin adds when a MIG instance is shared in time: no profile of its own.
_MIG = re.compile(r"(?P<slices>\d+g\.\d+gb)(?P<attributes>(?:[.-][a-z]+)*)(?<!\.shared)", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class MigRequest:
    """`nvidia.com/mig-<profile>`: the quantity counts instances."""

    profile: str


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class MpsRequest:
    """`nvidia.com/gpu-<N>gb`: the quantity counts slices of N GB (10^9 bytes)."""

    memory_gb: int


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class WholeRequest:
    """`nvidia.com/gpu`: the quantity counts GPUs, or replicas on a node that shares by MPS without renaming."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SharedRequest:
    """`nvidia.com/gpu.shared`: the quantity counts equal MPS replicas."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class AckRequest:
    """`aliyun.com/gpu-mem`: the quantity is the size of one MPS slice in GiB."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class NoMemoryRequest:
    """`nvidia.com/gpu-0gb`: meant as an MPS slice, but without memory, which cannot exist."""


ResourceRequest: TypeAlias = MigRequest | MpsRequest | WholeRequest | SharedRequest | AckRequest | NoMemoryRequest


def mig_resource(profile: str) -> str:
    """`1g.10gb+me` -> `nvidia.com/mig-1g.10gb.me`."""
    return _MIG_PREFIX + profile.replace("+", ".")


def profile_of_resource(name: str) -> str | None:
    """`nvidia.com/mig-1g.10gb.me` -> `1g.10gb+me`; None where the name is not that of a MIG profile."""
    if not name.startswith(_MIG_PREFIX):
        return None
    found = _MIG.fullmatch(name.removeprefix(_MIG_PREFIX))
    if found is None:
        return None
    # `.all` belongs to the attribute before it (+me.all), every other dot opens one.
    attributes = re.sub(r"\.(?!all\b)", "+", found["attributes"])
    try:
        return str(MigProfile.parse(found["slices"] + attributes))
    except ProfileError:
        return None


def mps_resource_gb(memory_gb: int) -> str:
    """10 -> `nvidia.com/gpu-10gb`."""
    return f"{WHOLE}-{memory_gb}gb"


def mps_gb_of_resource(name: str) -> int | None:
    """`nvidia.com/gpu-10gb` -> 10; None for any other name."""
    found = _MPS_GB.fullmatch(name)
    return int(found[1]) if found else None


def classify(resource_name: str) -> ResourceRequest | None:
    """What a resource name requests of GPUs; None if it requests no GPU."""
    if resource_name == WHOLE:
        return WholeRequest()
    if resource_name == SHARED:
        return SharedRequest()
    if resource_name == ACK_MEMORY:
        return AckRequest()
    if resource_name == NO_MEMORY:
        return NoMemoryRequest()
    memory_gb = mps_gb_of_resource(resource_name)
    if memory_gb is not None:
        return MpsRequest(memory_gb=memory_gb)
    profile = profile_of_resource(resource_name)
    return None if profile is None else MigRequest(profile=profile)


def is_misnamed(resource_name: str) -> bool:
    """Named like a MIG instance or an MPS slice (`nvidia.com/mig-…`), or like a share of HAMi's, and none of ours."""
    return _LIKE_OURS.match(resource_name) is not None and classify(resource_name) is None
