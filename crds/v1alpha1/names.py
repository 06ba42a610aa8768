"""Every name of the API that is not a field: group, labels, taints, field managers, conditions, reasons, states.

One place, so that controller, agent, sandbox, chart and documentation cannot drift apart. Constants only.
"""

from enum import StrEnum

GROUP = "gpuplan.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "GPUPartitionPlan"
PLURAL = "gpupartitionplans"

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

LABEL_ACK = "ack.node.gpu.schedule"
FOREIGN_PARTITIONING_LABELS = ("nos.nebuly.com/gpu-partitioning", "nos.nebuly.ai/gpu-partitioning", LABEL_ACK)
"""Labels of the systems that people come from; they are used where ours is not set."""

LABEL_MPS_REPLICAS = "gpuplan.dev/mps-replicas"
"""Into how many equal replicas MPS shares each GPU of a node: goes before the controller's setting `mpsReplicas`. 0:
none; pending pods decide."""
LABEL_NODE_AGENT = "gpuplan.dev/node-agent"
"""`true` while agent and device plugin belong on the node: set by the controller when the node is enabled, and removed
only after a node that is not enabled any more was handed back."""

ANNOTATION_OPERATOR_LABELS = "gpuplan.dev/operator-labels"
"""On a Node: the GPU Operator's labels that the controller has changed there, with the values from before (JSON; null:
the label was absent). It is written in the same patch as the labels, and removed in the one that restores them."""

LABEL_DRIVER, CLOSED = "gpuplan.dev/driver", "closed"
"""With this value gpuplan keeps its hands off the driver of the node: a person works on it, and removes the label."""

LABEL_PRODUCT = "nvidia.com/gpu.product"
LABEL_COUNT = "nvidia.com/gpu.count"
LABEL_MEMORY = "nvidia.com/gpu.memory"
LABEL_MIG_CAPABLE = "nvidia.com/mig.capable"
LABEL_COMPUTE_MAJOR = "nvidia.com/gpu.compute.major"
LABEL_COMPUTE_MINOR = "nvidia.com/gpu.compute.minor"

LABEL_MPS_DAEMONS = "gpuplan.dev/mps-daemons"
"""Set to "true" by the agent while the node has MPS slices, or daemons with clients: the DaemonSet of the daemons
selects it."""

TAINT_CHANGING = "gpuplan.dev/changing"
CHANGING_TAINT = {"key": TAINT_CHANGING, "effect": "NoSchedule"}
"""Set by the agent while the node's allocatable still counts a device that is being withdrawn."""


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
    """The closed set of condition types of a plan. Some are there only while they say what
    a person would not expect."""

    READY = "Ready"
    """True: hardware, device plugin, kubelet and Node agree with the generation that the condition names. False: not
    yet, or a GPU cannot. Unknown, written by the controller: no agent can answer. Remedy: follow its reason."""
    RECONCILING = "Reconciling"
    """True: something is under way. Remedy: wait."""
    STALLED = "Stalled"
    """True: a person or the hardware must act. Waiting for a pod to end is no stall. Remedy: follow its reason."""
    APPLIED = "Applied"
    """True: the hardware matches the plan, advertised or not. Remedy: follow its reason."""
    ADVERTISED = "Advertised"
    """True: kubelet and Node show exactly what is advertised; its message names troubles of the device plugin that cost
    no partition yet. False also when the kubelet has not answered for `allocatableDeadlineSeconds`. Remedy: follow its
    reason."""
    DRIFTED = "Drifted"
    """True: the hardware of a GPU in the plan was changed outside gpuplan, and is not put right yet; what was put right
    is in the Event `DriftRepaired`. Remedy: find who changes it; pause the plan while a person has to."""
    OWNERSHIP_CONFLICT = "OwnershipConflict"
    """True: another device plugin, NVIDIA's DRA driver, or NVIDIA's mig-manager works on this node. Remedy: do what its
    message says."""
    AGENT_ALIVE = "AgentAlive"
    """Written by the controller. True: the agent renews its Lease and the API server takes its status. Remedy: check
    the agent's pod on the node."""
    GPUS_HEALTHY = "GPUsHealthy"
    """True: the driver answers for every GPU, and no GPU reports a fault. Remedy: follow its reason."""
    MEMORY_ONLY = "MemoryOnly"
    """True: a GPU is shared by `aliyun.com/gpu-mem`, which limits memory and not compute, and whose units
    kube-scheduler adds up over all GPUs of the node. Remedy: where one container starves another, or pods are bound
    to nodes on which no single GPU has their memory free, request sized slices (docs/mps.md)."""
    HOST_ACCESS = "HostAccess"
    """True: the agent sees the driver, its capability files and the processes of the node. While it does not see the
    processes, nothing counts as unused, so nothing is destroyed. Remedy: give the agent's pod what the message
    names."""
    HANDED_BACK = "HandedBack"
    """True: the node is not enabled any more, no pod holds a device of it, and none can get one. False: it is enabled,
    or waits for the pods that the message names. Remedy: wait for these pods to end, or delete them."""
    DRIVER_RELEASED = "DriverReleased"
    """True: gpuplan has closed the driver, as the node label `gpuplan.dev/driver=closed` or the GPU Operator requests:
    no pod holds a device or can get one, no MPS daemon runs, and the message names the programs that have the driver
    open still. False: no label requests it, or the message says what it waits for. Remedy: [work on the
    driver](operating.md#work-on-the-driver)."""
    ALLOCATABLE_WRITTEN = "AllocatableWritten"
    """True: the agent writes the Node's amounts of GPU resources as soon as the kubelet lists the devices, within what
    the admission policy `gpuplan-agent-node` lets it write. False: the kubelet's status tick does it, up to ten seconds
    later. Remedy: do what its message says, or nothing."""
    SERVED_BY_DRA = "ServedByDRA"
    """Written by the controller. True: NVIDIA's DRA driver lists GPUs of this node, or a DeviceClass maps one of its
    resources, so that kube-scheduler may have DRA serve pods here. Remedy: do what its message says."""
    OPERATOR_LABELS = "OperatorLabels"
    """False: by its labels the GPU Operator runs its device plugin or mig-manager on this enabled node. Remedy: run the
    command in its message, or set `operatorLabels: manage`."""


class Reason(StrEnum):
    """Reasons of conditions and of `status.gpus[].reason`, each one CamelCase word that a person can search for.

    The docstrings here and below are docs/conditions.md, which `python -m docs.generate` makes.
    """

    # all is well
    CONFIRMED = "Confirmed"
    """It is in force, and was seen to be."""
    UNMANAGED = "Unmanaged"
    """The plan does not list this GPU: it is advertised as it is, and never changed."""
    AS_PLANNED = "AsPlanned"
    """The hardware is as planned."""
    HEARTBEAT = "Heartbeat"
    """The agent renews its Lease."""
    SHARED_BY_MEMORY = "SharedByMemory"
    """GPUs are shared in units of `aliyun.com/gpu-mem`."""
    IDLE = "Idle"
    """Nothing is under way, or nothing needs a person to act."""
    # under way
    CHANGING = "Changing"
    """Partitions are being created or destroyed. Remedy: wait."""
    WITHDRAWING = "Withdrawing"
    """Partitions are being taken off the kubelet's list; those that are unused then are destroyed. Remedy: wait."""
    ADVERTISING = "Advertising"
    """The partitions exist; device plugin, kubelet or Node do not show them yet. Remedy: wait; a kubelet writes its
    Node every ten seconds."""
    WAITING_FOR_RELEASE = "WaitingForRelease"
    """A partition in use is in the way; the message names its pod. Remedy: wait for that pod to end, or delete it."""
    HELD_OPEN = "HeldOpen"
    """The driver refuses to destroy a partition that no pod and no listed process uses: a program such as DCGM has it
    open. The partition is advertised until the next try. Remedy: wait for five minutes, then run the command in the
    message, or set `operatorLabels: manage`."""
    USE_UNKNOWN = "UseUnknown"
    """Whether a partition in the way is in use is not known, so it counts as in use. Remedy: wait a minute after a
    restart; if it lasts, the message names the source that does not answer."""
    STARTING = "Starting"
    """The agent has not been heard yet. Remedy: wait; if it lasts, check the agent's pod on the node."""
    PAUSED = "Paused"
    """`spec.paused` is true: nothing is changed. Remedy: remove `spec.paused` when you are done."""
    DRIVER_UPGRADE = "DriverUpgrade"
    """The GPU Operator replaces the driver: the agent has closed it, advertises nothing, and makes the partitions again
    when the driver is back. Remedy: wait; if it lasts, look at the operator's driver pod on the node."""
    DRIVER_CLOSED = "DriverClosed"
    """The node has the label `gpuplan.dev/driver=closed`: a person works on the driver. Nothing is advertised, changed
    or planned there. Remedy: see the condition `DriverReleased`; when you are done, `kubectl label node NODE
    gpuplan.dev/driver-`."""
    NODE_DISABLED = "NodeDisabled"
    """The node is not enabled any more: no pod gets a device of it, and its plan is not carried out. Remedy: see the
    condition `HandedBack`; label the node `gpuplan.dev/gpu-partitioning` to enable it again."""
    # a person or the hardware must act
    NOT_PLANNED = "NotPlanned"
    """The hardware is as the plan has it, and nothing more is planned, since the node's label is not understood or its
    labels disagree. Remedy: set `gpuplan.dev/gpu-partitioning` to mig, mps or auto."""
    GPU_MISMATCH = "GPUMismatch"
    """The item names by `uuid` a card that is not in this node, and its index is that of another card: nothing is
    changed. Remedy: correct the `uuid`, or leave it out."""
    NO_SUCH_GPU = "NoSuchGPU"
    """The plan lists an index or a `uuid` that the node does not have. Remedy: remove the item; if a card is missing,
    see the node's kernel log."""
    MIG_MODE_DISABLED = "MIGModeDisabled"
    """MIG mode is off. Remedy: have gpuplan [let go of the driver](operating.md#work-on-the-driver), then run
    `nvidia-smi -i INDEX -mig 1` on the node."""
    MIG_MODE_ENABLED = "MIGModeEnabled"
    """MIG mode is on, and the plan has MPS slices or the whole GPU. Remedy: plan `mig.instances`, or have
    gpuplan [let go of the driver](operating.md#work-on-the-driver) and run `nvidia-smi -i INDEX -mig 0`."""
    MIG_NOT_SUPPORTED = "MIGNotSupported"
    """This model has no MIG. Remedy: plan `mps.slices`, or `whole: {}`."""
    INVALID_LAYOUT = "InvalidLayout"
    """The partitions do not fit on this GPU, or the plan cannot be read. Remedy: correct the item as the message
    says."""
    NOT_SUPPORTED = "NotSupported"
    """The plan has a field that this version does not serve. Remedy: use what the message names instead."""
    DRIVER_ERROR = "DriverError"
    """The driver is away or refused a call; it is tried again. Remedy: if it lasts, look for Xid errors in the node's
    kernel log, and [reset the GPU](operating.md#work-on-the-driver)."""
    DEVICE_PLUGIN_ERROR = "DevicePluginError"
    """The device plugin reports an error, or an MPS daemon does not answer. Remedy: read the message and the log of the
    node's device plugin pod."""
    ADVERTISE_TIMEOUT = "AdvertiseTimeout"
    """Device plugin, kubelet or Node have not shown the partitions within the deadline. Remedy: check that the device
    plugin pod runs on the node, then the kubelet."""
    CDI_UNAVAILABLE = "CDIUnavailable"
    """No container could use the device, so it is not advertised. Remedy: see [how containers get their
    devices](operating.md#how-containers-get-their-devices)."""
    HOST_NOT_VISIBLE = "HostNotVisible"
    """The agent's pod does not see what it must of the host. Remedy: run it with `hostPID: true` and the mounts of the
    chart."""
    POLICY_MISSING = "PolicyMissing"
    """The API server would let the agent write what it must not: its admission policy is not in force. Remedy: install
    the chart's policies `20` and `21` with their bindings; the agent asks again within half an hour."""
    NOT_PERMITTED = "NotPermitted"
    """The API server refuses the agent a write, and not by gpuplan's policy. Remedy: grant what the message names, or
    set `agent.settings.writeAllocatable: false`."""
    DRIFT = "Drift"
    """The hardware differs from what was confirmed: something else changed it. Remedy: find who changes it; pause the
    plan while a person has to."""
    OPERATOR_LABELS_MISSING = "OperatorLabelsMissing"
    """The GPU Operator's label of its device plugin or mig-manager is not `false` on this enabled node. Remedy: run the
    command in the message."""
    HELD_TWICE = "HeldTwice"
    """The kubelet gave one device to two pods, and both have not ended; also on each pod, which does not name the
    other one. Remedy: delete one of the pods that the message on the plan names."""
    FOREIGN_OWNER = "ForeignOwner"
    """Another device plugin, NVIDIA's DRA driver or NVIDIA's mig-manager runs on this node. Remedy: do what the message
    says."""
    UNHEALTHY = "Unhealthy"
    """The GPU reports a fault, cannot be read, or does not answer. After 5 s, a minute or five minutes no further pod
    gets a partition of it. Remedy: [reset the GPU](operating.md#work-on-the-driver), reboot, or replace the
    card."""
    # written by the controller
    AGENT_SILENT = "AgentSilent"
    """The agent has not renewed its Lease for `agentSilentSeconds`: the node is not planned. Remedy: check the agent's
    pod on the node."""
    MAPPED_TO_DRA = "MappedToDRA"
    """A DeviceClass has the name of one of the node's resources as `extendedResourceName`: while the Node counts none
    of it, kube-scheduler has DRA serve pods that request it. Remedy: take the name out of the DeviceClass."""
    CANNOT_REPORT = "CannotReport"
    """The agent runs, and the API server refused its last three or more status writes: the status is out of date.
    Remedy: allow what the message names; otherwise report it as a bug."""
    NODE_NOT_FOUND = "NodeNotFound"
    """There is no Node of this name. Remedy: correct the plan's name, or wait until the node joins the cluster."""
    AWAITING_AGENT = "AwaitingAgent"
    """The agent has not written a status yet. Remedy: label the node `gpuplan.dev/gpu-partitioning`, and check the
    agent's pod on it."""


class EventReason(StrEnum):
    """Reasons of Events, besides those of conditions and those for which a pod waits."""

    PLANNED = "Planned"
    """On a pod: for five seconds or more, partitions for it are being made on the node that the message names.
    Remedy: wait."""
    MPS_USER = "MPSUser"
    """On a pod: it requests an MPS slice and does not run as the user of the setting `mpsUserID`; CUDA in it waits
    while pods of that user use the GPU. Remedy: set `securityContext.runAsUser`."""
    PARTITION_GONE = "PartitionGone"
    """On a pod: it was bound to a partition that its node no longer had, and the kubelet refused it. Remedy: none for
    pods of a Deployment; create a bare pod again."""
    PLAN_WRITTEN = "PlanWritten"
    """On a plan: the controller has written `spec.planned`."""
    PLAN_FAILED = "PlanFailed"
    """On a plan: it could not be planned or written, so it stays as it is and no pod is planned for its node. On a
    bound pod: planning with it failed, so that only what it holds counts. Remedy: allow the write where the message
    names a refusal; otherwise report the traceback in the controller's log."""
    MPS_RESTORED = "MPSRestored"
    """On a plan: an MPS daemon had ended and was started again, or a client changed its limits, which were set back.
    Remedy: find the pod on that GPU that does so; create pods again whose CUDA processes failed."""
    DRIFT_REPAIRED = "DriftRepaired"
    """On a plan: instances that something else created or destroyed were put right. Remedy: find who changes them."""
    PARTITIONING_LABELS = "PartitioningLabels"
    """On a Node: its labels cannot be understood, or contradict each other; with `operatorLabels: manage` also the
    annotation `gpuplan.dev/operator-labels`. Remedy: set `gpuplan.dev/gpu-partitioning` to mig, mps or auto; for the
    annotation run the command in the message."""


OF_CONTROLLER = (Condition.AGENT_ALIVE, Condition.SERVED_BY_DRA)
"""Conditions that no agent writes."""
READY_OF_CONTROLLER = (Reason.AGENT_SILENT, Reason.CANNOT_REPORT, Reason.NODE_NOT_FOUND)
"""Reasons with which the controller writes Ready=Unknown in place of an agent that has written Ready before."""


class GpuState(StrEnum):
    """`status.gpus[].state`."""

    UNMANAGED = "Unmanaged"
    """No item in the plan: reported, never changed."""
    CHANGING = "Changing"
    """Partitions are being created or destroyed."""
    ADVERTISING = "Advertising"
    """Created; the kubelet or the Node does not show it yet."""
    WAITING_FOR_RELEASE = "WaitingForRelease"
    """A partition in use is in the way."""
    READY = "Ready"
    """Confirmed: hardware, plugin, kubelet and Node agree with the plan."""
    FAILED = "Failed"
    """`reason` and `message` name what must be done."""


class PartitionState(StrEnum):
    """`status.gpus[].partitions[].state`. Anything but Free counts as used."""

    USED = "Used"
    """A pod or a process holds it."""
    FREE = "Free"
    """All sources of use agree that nothing holds it."""
    UNKNOWN = "Unknown"
    """Whether it is in use is not known."""
    PENDING = "Pending"
    """Exists, not yet schedulable."""
    WITHDRAWN = "Withdrawn"
    """No longer advertised; will be destroyed."""


class Backend(StrEnum):
    """Which device plugin advertises the partitions to the kubelet."""

    GPUPLAN = "gpuplan"
    NVIDIA = "nvidia"
