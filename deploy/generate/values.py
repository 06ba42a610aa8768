"""The chart's values: every key with its type, default and meaning, from which its files are made.

`Values` is the whole of values.yaml, in the order in which the file shows it. What the programs accept is taken from
their own settings, so that chart and programs cannot differ. Nothing here reads a file.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, create_model

from controller.config.settings import Seconds
from controller.config.settings import Settings as ControllerProgram
from crds.v1alpha1.names import FOREIGN_PARTITIONING_LABELS, LABEL_PARTITIONING
from deploy.generate.optional_objects import Monitoring, NetworkPolicy, Policies
from deploy.generate.parts import (
    PRIORITY,
    Account,
    Directory,
    Image,
    MapName,
    Name,
    Namespace,
    Port,
    Profile,
    Quantity,
    Resources,
    Texts,
    Toleration,
    resources,
)
from kube.settings import Section
from nodeagent.settings import Settings as AgentProgram


class Program(Section):
    """What all programs have."""

    pod_labels: Texts = {}
    """Added to its pods."""
    pod_annotations: Texts = {}
    """Added to its pods."""


def _settings(name: str, program: type[Section], set_by_chart: Iterable[str]) -> Any:
    """The program's settings but those that the chart sets itself; none is given by default."""
    fields: dict[str, Any] = {
        field: (info.annotation if not info.metadata else Annotated[info.annotation, *info.metadata], info)
        for field, info in program.model_fields.items()
        if field not in set(set_by_chart)
    }
    return create_model(name, __base__=Section, **fields)


COMMON = ("namespace", "metrics_address", "metrics_port", "log_format")
ControllerSettings = _settings(
    "ControllerSettings",
    ControllerProgram,
    (
        *COMMON,
        "ack_memory",
        "mps_user_id",
        "batch_window_timeout_seconds",
        "batch_window_idle_seconds",
        "scheduler",
        "scheduler_config_file",
        "known_mig_geometries_file",
        "operator_labels",
        "nvidia_config",
    ),
)
OF_THE_POD = (
    "state_dir",
    "kubelet_dir",
    "cdi_spec_dirs",
    "proc_dir",
    "containerd_config",
    "mps_read_only_pipes",
    "mps_exclusive_process",
    "nvidia_backend",
    "nvidia_mps_root",
)
AgentSettings = _settings("AgentSettings", AgentProgram, (*COMMON, *OF_THE_POD))


class Controller(Program):
    """The Deployment that plans. One of its replicas leads."""

    replicas: Annotated[int, Field(ge=0, le=5)] = 2
    """With more than one there is a PodDisruptionBudget, and another one takes over within 15 s."""
    settings: ControllerSettings = ControllerSettings()  # type: ignore[valid-type]  # made at run time
    """Further settings, by the names of the settings file; those not given have the defaults of the program."""
    metrics_port: Port = 9840
    """Port of /metrics, /healthz, /readyz and /decisions."""
    topology_keys: list[str] = ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]
    """Its replicas are spread over the values of these node labels, where that is possible."""
    node_selector: Texts = {}
    """Labels that its nodes must have."""
    tolerations: list[Toleration] = []
    """Taints that its pods tolerate."""
    service_account: Account = Account(name="gpuplan-controller")
    """The identity of its pods."""
    priority_class_name: str = "system-cluster-critical"
    """Empty: none. GKE allows the system classes only in namespaces with a ResourceQuota for them."""
    resources: Resources = resources("100m", "256Mi", "1Gi")
    """Of its container. docs/performance.md states what 1,000 nodes need."""
    termination_grace_period_seconds: Annotated[int, Field(ge=5, le=3600)] = 30
    """How long a pod may take to finish a pass and release its Lease."""


class NodeLabel(Section):
    """A label with the values that enable a node."""

    key: str
    """The label."""
    values: Annotated[list[str], Field(min_length=1)]
    """Any of these."""


class Nodes(Section):
    """The nodes that agent and device plugin run on, and where their files lie."""

    labels: Annotated[list[NodeLabel], Field(min_length=1)] = [
        NodeLabel(key=LABEL_PARTITIONING, values=["mig", "mps", "auto"]),
        *(
            NodeLabel(key=key, values=["mps"] if key.startswith("ack.") else ["mig", "mps"])
            for key in FOREIGN_PARTITIONING_LABELS
        ),
    ]
    """A node with any of these labels has an agent. The controller knows these four alone, ours, nos' two and ACK's:
    with another one a node has an agent and no plan."""
    selector: Texts = {}
    """Labels that a node must have, too: with GPU Operator 26.7 `nvidia.com/gpu.deploy.client: "true"`."""
    tolerations: list[Toleration] = [Toleration(operator="Exists")]
    """By default all taints: gpuplan's own, those of GPU nodes, and those of a node in trouble. `gpuplan.dev/changing`
    is tolerated whatever this list has."""
    runtime_class_name: str = ""
    """`nvidia` where NVIDIA's container runtime is not the node's default, as with GPU Operator 25.10 or newer."""
    kubelet_dir: Directory = "/var/lib/kubelet"
    """The kubelet's root directory."""
    state_dir: Directory = "/var/lib/gpuplan"
    """What agent and device plugin remember; on the node's disk."""
    mps_dir: Annotated[str, Field(pattern="^/[^:]*[^/:]$", max_length=40)] = "/run/gpuplan/mps"
    """Pipe and log directories of the MPS daemons, mounted into pods with MPS slices."""
    cdi_dir: Directory = "/var/run/cdi"
    """Where the container runtime looks for generated CDI specifications; the agent writes that of its node there."""
    containerd_config: Annotated[str, Field(pattern="^(/[^:]+)?$")] = ""
    """containerd's configuration file, which the agent reads to see whether containerd 1.7 uses CDI. Empty: that of
    k3s, RKE2, MicroK8s or /etc/containerd/config.toml, whichever is there."""


class Agent(Program):
    """The DaemonSet that partitions the GPUs of its node."""

    settings: AgentSettings = AgentSettings()  # type: ignore[valid-type]  # made at run time
    """Further settings, by the names of the settings file; those not given have the defaults of the program."""
    metrics_port: Port = 9841
    """Port of /metrics, /healthz and /readyz."""
    max_unavailable: Annotated[str, Field(pattern="^[1-9][0-9]?%$")] | Annotated[int, Field(ge=1)] = "10%"
    """How many agents an update may replace at a time. No container on the node notices it."""
    service_account: Account = Account(name="gpuplan-agent")
    """The identity of its pods."""
    priority_class_name: str = PRIORITY
    """Empty: none. GKE allows the system classes only in namespaces with a ResourceQuota for them."""
    resources: Resources = resources("20m", "96Mi", "512Mi")
    """Of its container."""
    termination_grace_period_seconds: Annotated[int, Field(ge=5, le=3600)] = 60
    """How long a pod may take to finish its step on a GPU and release its Lease."""


class PluginConfig(Section):
    """The ConfigMap that NVIDIA's device plugin mounts."""

    name: MapName = ""
    """Its name, which allows plans with devicePlugin.backend nvidia. It adds the right to write this one, and agents
    mount the kubelet's directory pods, read-only. Empty: NVIDIA's device plugin is not driven."""
    namespace: Annotated[str, Field(min_length=1, max_length=63)] = "gpu-operator"
    """Where that plugin runs. The ConfigMap must be there already."""


class DevicePlugin(Program):
    """The DaemonSet that advertises partitions to the kubelet."""

    config: PluginConfig = PluginConfig()
    """NVIDIA's device plugin as the backend of nodes whose plan says so; docs/mps.md."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severity that is logged."""
    service_account: Account = Account(name="gpuplan-device-plugin")
    """The identity of its pods. It has no token and no rights."""
    priority_class_name: str = PRIORITY
    """Empty: none. GKE allows the system classes only in namespaces with a ResourceQuota for them."""
    resources: Resources = resources("20m", "64Mi", "512Mi")
    """Of its container."""
    liveness_port: Port = 9842
    """Port of /healthz on the node's 127.0.0.1, for the kubelet alone. Choose another where a program has it."""
    termination_grace_period_seconds: Annotated[int, Field(ge=5, le=3600)] = 30
    """How long a pod may take to finish its answers."""


class Mps(Program):
    """MPS slices, and the DaemonSet of the MPS control daemons. It runs on nodes with slices. An update replaces its
    pod when you delete it: its end fails the CUDA processes in MPS slices of its node, so drain these first."""

    user_id: Annotated[int, Field(ge=0)] | None = Field(default=None, alias="userID")
    """The only user that pods with MPS slices run as. Given: an MPS server serves that user alone, an admission policy
    warns the person who creates such a pod that runs as another user, and the pod has an Event. Absent: all users share
    the server of a GPU where the driver can (--multiuser-server); elsewhere a second user's CUDA waits for the first's
    pods to end."""
    read_only_pipes: bool = True
    """Mount the pipe directory of an MPS daemon read-only into its clients, which CUDA was seen to need no more than
    (driver 580). false: writable, which lets root in a client's container fill the node's /run."""
    exclusive_process: bool = True
    """Keep a GPU in compute mode EXCLUSIVE_PROCESS while it is shared by MPS, so that the driver refuses a program that
    does not use MPS. Its mode before is restored."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severity that is logged."""
    priority_class_name: str = PRIORITY
    """Empty: none. GKE allows the system classes only in namespaces with a ResourceQuota for them."""
    requests: dict[str, Quantity] = {"cpu": "20m", "memory": "96Mi"}
    """Of its container. It has no limits: the MPS servers of the node's clients count in them."""
    fail_requests_greater_than_one: bool = True
    """NVIDIA's setting: `policies.mpsRequests` refuses a container that requests several `nvidia.com/gpu.shared`. false
    where plans have `failRequestsGreaterThanOne: false`, which merges them."""


class SchedulerConfig(Section):
    """A ConfigMap with a KubeSchedulerConfiguration."""

    name: MapName = ""
    """The ConfigMap with the KubeSchedulerConfiguration in force. It adds the right to read this one. Empty: pods are
    filtered as by default."""
    namespace: Name = "kube-system"
    """Where it lies."""
    key: Annotated[str, Field(max_length=253)] = ""
    """Which of its keys; may be left out where it has but one."""


class Scheduler(Section):
    """The scheduler whose filters are simulated."""

    config: SchedulerConfig = SchedulerConfig()
    """nos' setting of the same name."""


class PullSecret(Section):
    """As in a pod."""

    name: Name
    """Of the Secret."""


class Geometry(Section):
    """What planning may make of some models."""

    models: Annotated[list[str], Field(min_length=1)]
    """Names of models."""
    allowed_geometries: Annotated[list[dict[Profile, Annotated[int, Field(ge=1)]]], Field(min_length=1)]
    """Counts by profile."""


class Values(Section):
    """gpuplan's values."""

    image: Image = Image()
    """Which image all programs run."""
    image_pull_secrets: list[PullSecret] = []
    """Secrets in the namespace, as in a pod: `[{name: registry}]`."""
    namespace: Namespace = Namespace()
    """The namespace that gpuplan is installed into."""
    common_labels: Texts = {}
    """Added to every object."""
    log_format: Literal["text", "json"] = "text"
    """How every program writes its log: text, as key=value pairs, or json, an object a line."""
    batch_window_timeout_seconds: Seconds = 5.0
    """Longest time between the first pending pod of a batch and its planning, however many more arrive."""
    batch_window_idle_seconds: Seconds = 1.0
    """A batch is planned when no further pod arrived for this long."""
    known_mig_geometries: list[Geometry] = []
    """Models named here are partitioned in these ways only, in nos' format:
    `[{models: [A30], allowedGeometries: [{1g.6gb: 4}]}]`."""
    scheduler: Scheduler = Scheduler()
    """The scheduler whose filters are simulated."""
    operator_labels: Literal["report", "manage"] = "report"
    """The GPU Operator's labels that switch its device plugin and mig-manager off. `manage`: the controller sets them
    on nodes that you enable, restores what was there, and takes DCGM off a node while it holds a partition open that
    is to be destroyed; it may write these four labels. `report`: the plan says which are missing, with the command, and
    what was set before is put back."""
    controller: Controller = Controller()
    """The Deployment that plans. One of its replicas leads."""
    nodes: Nodes = Nodes()
    """The nodes that agent and device plugin run on, and where their files lie."""
    agent: Agent = Agent()
    """The DaemonSet that partitions the GPUs of its node."""
    device_plugin: DevicePlugin = DevicePlugin()
    """The DaemonSet that advertises partitions to the kubelet. An update replaces its pod on a node when you delete
    it, which no container notices."""
    mps: Mps = Mps()
    """MPS slices, and the DaemonSet of the MPS control daemons. It runs on nodes with slices. An update replaces its
    pod when you delete it: its end fails the CUDA processes in MPS slices of its node, so drain these first."""
    policies: Policies = Policies()
    """Admission policies beyond those that limit gpuplan's own accounts, which are always installed."""
    network_policy: NetworkPolicy = NetworkPolicy()
    """Who may reach gpuplan's pods, and what these may reach."""
    monitoring: Monitoring = Monitoring()
    """Prometheus and Grafana."""
