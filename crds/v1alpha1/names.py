"""Every name of the API that is not a field: group, labels, taints, field managers, conditions, reasons, states.

One place, so that controller, agent, sandbox, chart and documentation cannot drift apart. Constants only.
"""

from enum import StrEnum

GROUP = "gpuplan.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "GPUPartitionPlan"
PLURAL = "gpupartitionplans"
SINGULAR = "gpupartitionplan"
SHORT_NAME = "gpp"
CATEGORY = "gpu"

CONTROLLER_MANAGER = "gpuplan-controller"
AGENT_MANAGER = "gpuplan-agent"
NAMESPACE = "gpuplan-system"
"""Where gpuplan's own Leases live unless the settings name another namespace."""

CONTROLLER_LEASE = "gpuplan-controller"


def agent_lease(node_name: str) -> str:
    """Name of the Lease with which the agent of a node shows that it lives."""
    return f"gpuplan-agent.{node_name}"


ANNOTATION_STATUS_PROBLEM = "gpuplan.dev/status-problem"
"""On that Lease: why the API server refuses the status that the agent writes. Absent while it takes it."""

LABEL_PARTITIONING = "gpuplan.dev/gpu-partitioning"
"""Enables a node; its values are those of `Partitioning`."""

FOREIGN_PARTITIONING_LABELS = (
    "nos.nebuly.com/gpu-partitioning",
    "nos.nebuly.ai/gpu-partitioning",
    "ack.node.gpu.schedule",
)
"""Labels of the systems that people come from; they count where ours is absent."""

LABEL_PRODUCT = "nvidia.com/gpu.product"
LABEL_COUNT = "nvidia.com/gpu.count"
LABEL_MEMORY = "nvidia.com/gpu.memory"

TAINT_CHANGING = "gpuplan.dev/changing"
CHANGING_TAINT = {"key": TAINT_CHANGING, "effect": "NoSchedule"}
"""Set by the agent while the node's allocatable still counts a slice that is being withdrawn."""


class Partitioning(StrEnum):
    """How the GPUs of a node are partitioned."""

    MIG = "mig"
    MPS = "mps"
    AUTO = "auto"  # each GPU as its MIG mode is


class Mode(StrEnum):
    """Who decides the layout of the GPUs that are not pinned; absent means Auto."""

    AUTO = "Auto"
    MANUAL = "Manual"


class Condition(StrEnum):
    """The closed set of condition types of a plan; the agent writes all of them with its first status."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    APPLIED = "Applied"
    ADVERTISED = "Advertised"
    DRIFTED = "Drifted"
    OWNERSHIP_CONFLICT = "OwnershipConflict"
    AGENT_ALIVE = "AgentAlive"
    GPUS_HEALTHY = "GPUsHealthy"
    HOST_ACCESS = "HostAccess"


class Reason(StrEnum):
    """Reasons of conditions and of `status.gpus[].reason`, each one CamelCase word that a person can search for."""

    # all is well
    CONFIRMED = "Confirmed"
    UNMANAGED = "Unmanaged"
    AS_PLANNED = "AsPlanned"
    NO_CONFLICT = "NoConflict"
    HEARTBEAT = "Heartbeat"
    HEALTHY = "Healthy"
    IDLE = "Idle"
    # under way
    CHANGING = "Changing"
    WITHDRAWING = "Withdrawing"
    ADVERTISING = "Advertising"
    WAITING_FOR_RELEASE = "WaitingForRelease"
    USE_UNKNOWN = "UseUnknown"
    STARTING = "Starting"
    PAUSED = "Paused"
    # a person or the hardware must act
    GPU_MISMATCH = "GPUMismatch"
    NO_SUCH_GPU = "NoSuchGPU"
    MIG_MODE_DISABLED = "MIGModeDisabled"
    MIG_MODE_ENABLED = "MIGModeEnabled"
    MIG_NOT_SUPPORTED = "MIGNotSupported"
    INVALID_LAYOUT = "InvalidLayout"
    NOT_SUPPORTED = "NotSupported"
    DRIVER_ERROR = "DriverError"
    DEVICE_PLUGIN_ERROR = "DevicePluginError"
    ADVERTISE_TIMEOUT = "AdvertiseTimeout"
    CDI_UNAVAILABLE = "CDIUnavailable"
    HOST_NOT_VISIBLE = "HostNotVisible"
    DRIFT = "Drift"
    FOREIGN_OWNER = "ForeignOwner"
    UNHEALTHY = "Unhealthy"
    # written by the controller
    AGENT_SILENT = "AgentSilent"
    CANNOT_REPORT = "CannotReport"
    NODE_NOT_FOUND = "NodeNotFound"
    AWAITING_AGENT = "AwaitingAgent"


READY_OF_CONTROLLER = (Reason.AGENT_SILENT, Reason.CANNOT_REPORT, Reason.NODE_NOT_FOUND)
"""Reasons with which the controller writes Ready=Unknown in place of an agent that has written Ready before."""


class GpuState(StrEnum):
    """`status.gpus[].state`."""

    UNMANAGED = "Unmanaged"  # no item in the plan: reported, never touched
    CHANGING = "Changing"  # hardware or slices are being changed
    ADVERTISING = "Advertising"  # created; the kubelet or the Node does not show it yet
    WAITING_FOR_RELEASE = "WaitingForRelease"  # a partition in use is in the way
    READY = "Ready"  # confirmed: hardware, plugin, kubelet and node agree with the plan
    FAILED = "Failed"  # `reason` and `message` name what must be done


class PartitionState(StrEnum):
    """`status.gpus[].partitions[].state`. Anything but Free counts as used."""

    USED = "Used"
    FREE = "Free"
    UNKNOWN = "Unknown"
    PENDING = "Pending"  # exists, not yet schedulable
    WITHDRAWN = "Withdrawn"  # no longer advertised; will be destroyed


class Backend(StrEnum):
    """Which device plugin advertises the partitions to the kubelet."""

    GPUPLAN = "gpuplan"
    NVIDIA = "nvidia"
    NEBULY = "nebuly"
