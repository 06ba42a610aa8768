"""Every call of the driver that the agent makes, and what is to be on offer while it fails.

A *required* call is one without whose answer a GPU, or the node, is not known to work: while it fails nothing of it may
be on offer for longer than a minute (five while it hangs). An *optional* one costs only what needs it. A call that
*changes* hardware says nothing of what exists already.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from sandbox.driver.status import Status

FREE = "what is free"


class Kind(StrEnum):
    REQUIRED = "required"
    OPTIONAL = "optional"
    CHANGING = "changing"


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverCall:
    symbol: str
    kind: Kind
    gives: str
    """What the agent needs it for."""
    defaults: bool = False
    """It fails for all GPUs at once."""
    kept: bool = False
    """An agent that has the answer does not ask again."""
    whole: bool = False
    """It is made for a GPU whose MIG mode is off."""


def _calls(kind: Kind, gives: str, *symbols: str, **more: bool) -> Iterable[DriverCall]:
    return (DriverCall(symbol=symbol, kind=kind, gives=gives, **more) for symbol in symbols)


CALLS = (
    *_calls(Kind.REQUIRED, "the driver", "nvmlInitWithFlags", defaults=True, kept=True),
    *_calls(Kind.REQUIRED, "the driver", "nvmlDeviceGetCount_v2", defaults=True),
    *_calls(
        Kind.REQUIRED,
        "a GPU",
        "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetName",
        "nvmlDeviceGetMigMode",
    ),
    *_calls(
        Kind.REQUIRED,
        "MIG profiles",
        "nvmlDeviceGetGpuInstanceProfileInfoV",
        "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
        "nvmlGpuInstanceGetComputeInstanceProfileInfoV",
        kept=True,
    ),
    *_calls(
        Kind.REQUIRED,
        "MIG instances",
        "nvmlDeviceGetGpuInstances",
        "nvmlGpuInstanceGetInfo",
        "nvmlGpuInstanceGetComputeInstances",
        "nvmlComputeInstanceGetInfo_v2",
        "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceGetMigDeviceHandleByIndex",
        "nvmlDeviceGetGpuInstanceId",
        "nvmlDeviceGetComputeInstanceId",
    ),
    *_calls(Kind.OPTIONAL, "MPS clients on a GPU", "nvmlSystemGetDriverVersion", defaults=True, kept=True),
    *_calls(Kind.OPTIONAL, "MPS slices", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetCudaComputeCapability"),
    *_calls(Kind.OPTIONAL, "memory faults", "nvmlDeviceGetRemappedRows"),
    *_calls(Kind.OPTIONAL, "CDI", "nvmlDeviceGetMinorNumber"),
    *_calls(Kind.OPTIONAL, "MPS", "nvmlDeviceGetComputeMode", whole=True),
    *_calls(Kind.OPTIONAL, FREE, "nvmlDeviceGetComputeRunningProcesses_v3"),
    *_calls(
        Kind.OPTIONAL,
        FREE,
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        whole=True,
    ),
    *_calls(
        Kind.CHANGING,
        "a change",
        "nvmlDeviceCreateGpuInstanceWithPlacement",
        "nvmlGpuInstanceCreateComputeInstance",
        "nvmlComputeInstanceDestroy",
        "nvmlGpuInstanceDestroy",
        "nvmlDeviceGetGpuInstanceById",
        "nvmlGpuInstanceGetComputeInstanceById",
    ),
    *_calls(Kind.CHANGING, "a change", "nvmlDeviceSetComputeMode", whole=True),
)
ELSEWHERE = ("nvmlShutdown", "nvmlDeviceGetVirtualizationMode")
"""Called when everything is withdrawn, and to explain why a GPU that is read as broken is so."""
CODES = tuple(code for code in Status if code is not Status.SUCCESS)
GONE = (
    Status.UNINITIALIZED,
    Status.DRIVER_NOT_LOADED,
    Status.LIBRARY_NOT_FOUND,
    Status.LIB_RM_VERSION_MISMATCH,
)
"""Codes that say so of the driver as a whole, whichever call gives them."""
LOST = (Status.GPU_IS_LOST, Status.RESET_REQUIRED)
"""Codes that say so of the GPU, whichever call gives them."""
MISSING = (
    Status.INVALID_ARGUMENT,
    Status.NOT_SUPPORTED,
    Status.NO_PERMISSION,
    Status.NOT_FOUND,
    Status.FUNCTION_NOT_FOUND,
    Status.ARGUMENT_VERSION_MISMATCH,
)
"""Codes of a driver that does not have an optional answer."""
